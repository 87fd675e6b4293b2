// A disk that does what disks do, from a seed: it takes its time, ends operations in any order,
// loses, tears, misplaces and rots what it holds, refuses, stalls, and is cut off in the middle.
//
// A SimDisk is the disk as one process sees it; its files lie in a SimFiles, which the next process
// (another SimDisk) opens after crash() or after the first has died. Bytes move when the operation
// ends, never before. One thread, no wall clock: time is the loop's clock, and operations end in
// run_one(), which SimParker (sim_device.h) calls. The same seed and calls give the same events.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/operations.h"
#include "io/ring.h"
#include "runtime/engine_loop.h"
#include "runtime/parker.h"
#include "runtime/prng.h"
#include "tests/sim/sim_files.h"

namespace spillway::sim {

// Chances are per operation, in [0, 1]. All off by default; may be changed at any time.
struct SimDiskFaults {
  std::chrono::nanoseconds latency_min{0}, latency_max{0};
  double bytes_per_s = 0;  // of all transfers together; 0: no limit
  bool reorder = true;     // false: operations end in the order they began
  double stall = 0;        // takes `stall_time` longer
  std::chrono::nanoseconds stall_time = std::chrono::seconds(10);

  double read_error = 0;   // EIO; the memory may be half overwritten
  double short_read = 0;   // as if the file ended: kCorrupt
  double bit_rot = 0;      // a stored bit of what is read flips, for good, before the read
  double write_error = 0;  // EIO; a part may be stored
  double no_space = 0;     // ENOSPC of a write
  bool no_space_to_allocate = false;
  double torn_write = 0;  // reported as done; only the first sectors (of 512 bytes) are stored
  double lost_write = 0;  // reported as done; the old bytes are left
  double misdirected_write = 0;  // reported as done; stored elsewhere in the file
  double failed_sync = 0;        // what was not flushed may be lost for good

  // The next write stores only its first `bytes` (a multiple of 512) and is reported as done.
  std::optional<uint64_t> tear_next_write_after;
};

enum class Crash : uint8_t {
  kProcess,  // kill -9: writes in flight land whole, in part or not; the rest is as it was
  kPower,    // also, each unflushed sector survives or not
};

class SimDisk final : public io::Ring, private io::OperationDriver {
 public:
  // `loop` and `files` outlive it.
  SimDisk(EngineLoop& loop, SimFiles& files, uint64_t seed, uint32_t entries = 64);
  ~SimDisk() override;  // REQUIRES: drained

  SimDiskFaults faults;

  // Ends one operation that is due, which one the seed chooses. False when none is.
  bool run_one();
  // When the next operation may end; empty with none in flight.
  std::optional<Clock::TimePoint> next_due() const;

  // The memory that operations of this kind which are in flight read into, or write from.
  std::vector<std::span<const std::byte>> memory_of(io::Operation::Kind kind) const;

  // The end of this process. All its operations, those in flight and any later one, end with kIo
  // and change nothing any more, so that its coroutines come to an end; its locks are free. Outside
  // any coroutine.
  void crash(Crash how);
  bool crashed() const { return crashed_; }

  Result<std::shared_ptr<io::File>> open(const std::string& path, io::OpenOptions options) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Task<Result<>> read(io::Transfer transfer, StopFlag& stop) override;
  Task<Result<>> write(io::Transfer transfer, StopFlag& stop) override;
  Task<Result<>> sync(io::Transfer of, StopFlag& stop) override;
  Result<> register_memory(std::span<std::byte>) override { return {}; }
  void forget_memory(std::span<const std::byte>) override {}
  Task<> drain() override { return operations_.drain(); }
  io::RingStats stats() const override;
  std::string description() const override { return "simulated"; }

  SimFiles& files() { return files_; }

 private:
  friend class SimFile;
  struct InFlight {
    std::unique_ptr<io::Operation> operation;
    Clock::TimePoint due;
    std::vector<uint64_t> flushes;  // sectors that a sync makes durable
  };

  void start(std::unique_ptr<io::Operation> operation) override;
  void give_up(io::Operation& operation) override;
  void begin(std::unique_ptr<io::Operation> operation);
  void begin_queued();
  Result<> perform(InFlight& ending);
  Result<> perform_read(io::Operation& operation);
  Result<> perform_write(io::Operation& operation);
  void land_partly(const io::Operation& write, Crash how);
  bool chance(double of) { return of > 0 && prng_.uniform() < of; }
  uint64_t some_sectors(uint64_t bytes);  // less than all of them, in bytes

  SimFiles& files_;
  io::Operations operations_;
  Prng prng_;
  const uint32_t entries_;
  const uint32_t pid_;
  std::vector<InFlight> in_flight_;                            // in the order they began
  std::deque<std::unique_ptr<io::Operation>> reads_, others_;  // wait for an entry
  Clock::TimePoint busy_until_{};
  bool crashed_ = false;
};

// Parks by letting the disk end an operation, or else the clock go to whatever comes next. For
// programs without a device; with one see SimParker (sim_device.h).
class SimDiskParker final : public Parker {
 public:
  explicit SimDiskParker(SimulatedClock& clock) : clock_(clock) {}
  void park(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() override {}
  std::string description() const override { return "simulated"; }

  SimDisk* disk = nullptr;
  // Called before each park, so that the world can do something meanwhile.
  std::function<void()> before_park = [] {};

 private:
  SimulatedClock& clock_;
};

}  // namespace spillway::sim
