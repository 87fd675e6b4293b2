// A device whose streams run when the simulation says so: operations of one stream in order, those
// of different streams in any order a seed chooses. One thread, no wall clock.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/parker.h"
#include "runtime/prng.h"
#include "runtime/suspend.h"

namespace spillway::sim {

class SimDevice;

class SimEvent final : public kernels::Event {
 public:
  bool done() const override { return recorded_ == completed_; }
  Task<> wait() override;

 private:
  friend class SimStream;
  struct WaitOp;
  uint64_t recorded_ = 0, completed_ = 0;
  std::vector<std::unique_ptr<Resumer>> waiters_;
};

// What streams look at may outlive the gate.
class SimGate final : public kernels::Gate {
 public:
  void raise(uint32_t level) override { *level_ = std::max(*level_, level); }
  void abandon() override {
    abandoned_ = true;
    *level_ = UINT32_MAX;
  }
  bool abandoned() const override { return abandoned_; }

 private:
  friend class SimStream;
  std::shared_ptr<uint32_t> level_ = std::make_shared<uint32_t>(0);
  bool abandoned_ = false;
};

class SimStream final : public kernels::Stream {
 public:
  void launch(kernels::Launch work) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void record(kernels::Event& event) override;
  void wait(const kernels::Event& event) override;
  void wait(const kernels::Gate& gate, uint32_t level) override;

  bool runnable() const;  // its first operation may run now
  // When the first operation ends, if it waits for nothing but time.
  std::optional<Clock::TimePoint> next_due() const;
  void run_one();  // REQUIRES: runnable()

  // A copy that was enqueued and has not run.
  struct Copy {
    const std::byte* from = nullptr;
    const std::byte* to = nullptr;
  };
  std::vector<Copy> copies() const;
  uint64_t recorded() const { return recorded_; }  // events so far

 private:
  struct Operation {
    std::function<void()> run;
    const SimEvent* after = nullptr;  // waits for this one
    uint64_t after_count = 0;
    Clock::Duration takes{};
    Copy copy = {};                             // if it is one
    std::shared_ptr<const uint32_t> gate = {};  // waits until this is
    uint32_t level = 0;
    bool writes = false;  // to memory: not a record, nor a wait
  };
  friend class SimDevice;
  void push(Operation operation, Clock::Duration takes);
  bool unblocked() const;
  std::deque<Operation> operations_;
  const SimDevice* timed_ = nullptr;  // null: operations take no time
  bool ended_ = false;
  uint64_t recorded_ = 0;
  Clock::TimePoint head_since_{};  // the first operation was the first since
};

class SimDevice final : public kernels::Device {
 public:
  explicit SimDevice(uint64_t seed) : seed_(seed) {}

  Result<kernels::DeviceMemory> allocate(size_t bytes) override;
  Result<kernels::DeviceMemory> allocate_host(size_t bytes) override;
  bool host_reaches_memory() const override { return !own_memory; }
  std::unique_ptr<kernels::Event> make_event() override { return std::make_unique<SimEvent>(); }
  std::unique_ptr<kernels::Gate> make_gate() override {
    CHECK(gates);
    return std::make_unique<SimGate>();
  }
  bool has_gates() const override { return gates; }
  kernels::Stream& compute() override { return streams_[0]; }
  kernels::Stream& copy_in() override { return streams_[1]; }
  kernels::Stream& copy_out() override { return streams_[2]; }
  std::string description() const override { return "simulated"; }
  const Error* failure() const override { return failure_ ? &*failure_ : nullptr; }

  bool gates = true;  // false: a device without; set before it is used
  // True: what allocate() gives traps unless an operation runs. Set before it is used.
  bool own_memory = false;

  // Ends as device.h says: what its streams have yet to write is never written.
  void fail();
  // From now on it is another, which has not ended.
  void replace();

  // From now on operations take time, and run when that is over. `launch_time` is asked at each
  // launch. `clock` outlives the device.
  struct Speed {
    std::function<Clock::Duration()> launch_time = [] { return Clock::Duration{}; };
    double copy_bytes_per_s = 0;  // of each stream; 0: copies take no time
  };
  void set_speed(const Clock& clock, Speed speed);
  std::optional<Clock::TimePoint> next_due() const;

  // Runs one operation of a stream that the seed chooses. False when none can run.
  bool run_one();

  std::vector<SimStream::Copy> compute_copies() const { return streams_[0].copies(); }
  std::vector<SimStream::Copy> copies_in() const { return streams_[1].copies(); }
  std::vector<SimStream::Copy> copies_out() const { return streams_[2].copies(); }

 private:
  friend class SimStream;
  const Clock* clock_ = nullptr;  // null: operations take no time
  Speed speed_;
  uint64_t seed_;
  std::optional<Error> failure_;
  uint64_t choices_ = 0;
  using Blocks = std::vector<std::span<std::byte>>;
  void let_touch(bool may) const;
  // Memory of its own; whoever has some still has this.
  const std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
  SimStream streams_[3];
};

class SimDisk;

// Parks by letting the device or the disk end an operation, or else the clock go to the next timer
// or the next end of a disk operation.
class SimParker final : public Parker {
 public:
  SimParker(SimulatedClock& clock, SimDevice& device, uint64_t seed = 0)
      : clock_(clock), device_(device), choices_(seed) {}
  void park(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() override {}
  std::string description() const override { return "simulated"; }
  // Null: there is none. Set and unset as disks come and go.
  SimDisk* disk = nullptr;
  // Lets an operation of the device end; false: none can. Another where that is not the device.
  std::function<bool()> run_device = [this] { return device_.run_one(); };
  // Called before each park, so that the world can do something meanwhile.
  std::function<void()> before_park = [] {};
  // Called when neither the device nor the disk nor a timer can go on: an idle engine. Null: that
  // is a bug.
  std::function<void()> when_idle;

 private:
  SimulatedClock& clock_;
  SimDevice& device_;
  Prng choices_;
};

}  // namespace spillway::sim
