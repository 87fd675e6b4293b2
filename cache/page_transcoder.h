// Pages between their own bytes and what a codec makes of them, on threads that are not the
// engine's. A buffer takes the encoded bytes from the worker that makes them to the disk operation
// or the host page that keeps them, or from there to the worker that decodes them straight into the
// page's memory; whoever uses it last lets go of it.
//
// Sketch, SmolLM2 in f16: a page of 360 KiB, half of it through the Huffman coder at about 0.5 GB/s
// in and 1 GB/s out (docs/BENCHMARKS.md): 0.5 ms a page down, 0.25 ms up, 16 us a token against the
// 300 us of computing it.
//
// Owner and thread: Tiers, on the engine's thread. Bound: the buffers; take() waits for one, first
// come first served, and take_now() goes without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/staging.h"
#include "kernels/page_codec.h"
#include "runtime/result.h"
#include "runtime/semaphore.h"
#include "runtime/stop.h"
#include "runtime/task.h"
#include "runtime/worker_pool.h"

namespace spillway::cache {

class PageTranscoder {
 public:
  class Buffer {
   public:
    Buffer(Permit permit, std::shared_ptr<Staging::Slot> slot, size_t bytes)
        : permit_(std::move(permit)), slot_(std::move(slot)), bytes_(bytes) {}
    std::span<std::byte> bytes() const { return {slot_->data(), bytes_}; }

   private:
    Permit permit_;  // given back after the slot: who is woken by it finds one
    std::shared_ptr<Staging::Slot> slot_;
    size_t bytes_;
  };

  // `memory` is aligned to 4 KiB and holds at least one buffer; it outlives the transcoder, which
  // outlives its buffers.
  PageTranscoder(std::span<std::byte> memory, size_t buffer_bytes, RunWork run);

  Task<Result<std::shared_ptr<Buffer>>> take(StopFlag& stop);
  std::shared_ptr<Buffer> take_now();  // null: none is free
  size_t buffers() const { return staging_.slots(); }

  // Encodes a page into the buffer. How many of its bytes mean something; the rest of their last
  // sector is zero. 0: the page would not get smaller, or the workers have too much to do.
  Task<uint32_t> encode(kernels::PageCodec codec, std::span<const std::byte> page,
                        std::shared_ptr<Buffer> to);
  // Puts the encoded bytes where they are wanted. False: they are not those that were kept.
  using Fill = std::function<bool(std::span<std::byte> to)>;
  // Decodes the buffer's first bytes into the page, after `fill`, if any, has put them there on the
  // same worker. kCorrupt: they are not what encode() made.
  Task<Result<>> decode(kernels::PageCodec codec, std::shared_ptr<Buffer> from,
                        uint32_t encoded_bytes, std::span<std::byte> page, Fill fill = {});

 private:
  std::unique_ptr<kernels::PageCoder> borrow_coder();

  Staging staging_;
  const size_t buffer_bytes_;
  Semaphore free_;
  const RunWork run_;
  std::vector<std::unique_ptr<kernels::PageCoder>> coders_;  // that no work uses now
};

}  // namespace spillway::cache
