// Words of pinned memory that streams write and wait for: one a cache line, so that no two are
// written at once by different sides.
//
// Thread: the engine's takes and gives back. The words are read and written by streams, too.
// Bound: kWords; who takes bounds what it has (CHECK).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/health.h"
#include "kernels/cuda/runtime_api.h"
#include "kernels/device.h"

namespace spillway::kernels::cuda {

struct Word {
  std::atomic<uint32_t>* host = nullptr;
  CUdeviceptr device = 0;  // the same, as streams name it
};

class PinnedWords {
 public:
  static constexpr uint32_t kWords = 4096;

  // False: health.failure(), or the error of the allocation.
  Result<> allocate(const std::shared_ptr<Health>& health);
  Word take();  // zero. REQUIRES: allocate() succeeded
  // REQUIRES: no stream has yet to write it or look at it.
  void give_back(Word word);
  void set_all(uint32_t value);  // those that are free, too
  size_t taken() const { return kWords - free_.size(); }

 private:
  struct Line {
    alignas(64) std::atomic<uint32_t> word;
  };
  static_assert(sizeof(Line) == 64);
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

  DeviceMemory memory_;
  Line* lines_ = nullptr;  // (kWords)
  CUdeviceptr device_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace spillway::kernels::cuda
