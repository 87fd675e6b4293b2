// The ring on io_uring: the engine's loop sleeps in it (uring_parker.h), so a completion resumes
// its coroutine on the thread and in the turn of the loop that reaps it.
//
// What makes a transfer cheap: the file and, for memory that was registered, the pages are known to
// the kernel beforehand (READ_FIXED, WRITE_FIXED); all entries of a turn go in by one call; no
// interrupt of the thread, no copy. See bench/ring_bench for what that gives.
//
// An entry's user_data is the index of its slot and the slot's generation. A slot, the operation
// in it and all that this owns stay until the completion comes, whoever has stopped waiting; one
// of a generation that is gone is ignored and counted (case S7).
//
// Writes and flushes take at most a quarter of the entries, so that reads always go ahead. IOPOLL
// is not used: it needs a device with poll queues, and gives up sleeping.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/disk_file.h"
#include "io/operations.h"
#include "io/ring.h"
#include "io/uring_parker.h"
#include "runtime/engine_loop.h"
#include "runtime/intrusive_list.h"

namespace spillway::io {

class UringRing final : public Ring, private OperationDriver, private UringClient {
 public:
  struct Options {
    uint32_t entries = 128;      // operations in flight; at least 4
    uint32_t files_max = 64;     // registered; further ones work, a little dearer
    uint32_t ranges_max = 1024;  // of registered memory
  };
  // `parker` is the one that `loop` sleeps in. Both outlive the ring.
  UringRing(UringParker& parker, EngineLoop& loop, const Options& options);
  ~UringRing() override;  // REQUIRES: drained
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  Result<std::shared_ptr<File>> open(const std::string& path, OpenOptions options) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Task<Result<>> read(Transfer transfer, StopFlag& stop) override;
  Task<Result<>> write(Transfer transfer, StopFlag& stop) override;
  Task<Result<>> sync(Transfer of, StopFlag& stop) override;
  Result<> register_memory(std::span<std::byte> memory) override;
  void forget_memory(std::span<const std::byte> memory) override;
  Task<> drain() override { return operations_.drain(); }
  RingStats stats() const override;
  std::string description() const override;

  uint64_t registered_bytes() const { return registered_bytes_; }
  uint64_t fixed_transfers() const { return fixed_transfers_; }  // that lay in registered memory
  uint64_t stale_completions() const { return stale_completions_; }

 private:
  struct Slot {
    std::unique_ptr<Operation> operation;
    uint32_t generation = 0;
  };
  struct Range {  // of registered memory
    const std::byte* begin;
    size_t bytes;
    uint32_t index;  // in the kernel's table
  };

  void start(std::unique_ptr<Operation> operation) override;
  void give_up(Operation& operation) override;
  void fill() override;
  void on_completion(uint64_t user_data, int32_t result) override;

  Operation* next_queued();
  bool submit(Operation& operation);
  void prepare(io_uring_sqe& entry, const Operation& operation);
  const Range* range_of(std::span<const std::byte> memory) const;
  uint64_t tag_of(const Operation& operation) const;
  void end(uint32_t slot, Result<> result);
  void register_file(DiskFile& file);
  void forget_file(const DiskFile& file);

  UringParker& parker_;
  Operations operations_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  uint32_t others_in_flight_ = 0;  // writes and flushes
  const uint32_t others_max_;

  IntrusiveList<Operation> again_;           // own their slots already: short transfers, EAGAIN
  IntrusiveList<Operation> reads_, others_;  // wait for a slot; these lists own their elements
  uint32_t queued_ = 0;

  std::vector<bool> file_taken_;       // (index in the table)
  std::vector<Range> ranges_;          // ascending by address
  std::vector<uint32_t> free_ranges_;  // indices in the kernel's table
  uint64_t registered_bytes_ = 0;
  uint64_t refused_bytes_ = 0;  // that register_memory() could not register
  std::string why_refused_;
  uint64_t fixed_transfers_ = 0, stale_completions_ = 0;
};

}  // namespace spillway::io
