// A device for tests: one stream that runs everything at once, in the calling thread's time, with a
// team of any size. No engine needed; what is enqueued is done on return.
#pragma once

#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "kernels/paged_kv.h"
#include "runtime/check.h"

namespace spillway::model {

class TestTeam final : public kernels::Team {
 public:
  TestTeam(uint32_t index, uint32_t count, std::barrier<>& barrier)
      : index_(index), count_(count), barrier_(barrier) {}
  uint32_t index() const override { return index_; }
  uint32_t count() const override { return count_; }
  void barrier() override { barrier_.arrive_and_wait(); }

 private:
  uint32_t index_, count_;
  std::barrier<>& barrier_;
};

class TestStream final : public kernels::Stream {
 public:
  explicit TestStream(uint32_t threads) : threads_(threads) {}

  void launch(kernels::Launch work) override {
    std::barrier<> barrier(threads_);
    auto run = [&](uint32_t index) {
      TestTeam team(index, threads_, barrier);
      work(team);
    };
    std::vector<std::thread> helpers;
    for (uint32_t i = 1; i < threads_; ++i) helpers.emplace_back(run, i);
    run(0);
    for (std::thread& helper : helpers) helper.join();
    if (after_launch) after_launch();
  }
  void copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    last_copied = bytes;
  }
  void record(kernels::Event&) override {}
  void wait(const kernels::Event&) override {}
  void wait(const kernels::Gate& gate, uint32_t level) override { on_wait(gate, level); }
  size_t last_copied = 0;  // bytes
  // What should be there by then has to come now.
  std::function<void(const kernels::Gate&, uint32_t level)> on_wait;
  std::function<void()> after_launch;  // waits for what the launch began elsewhere

 private:
  uint32_t threads_;
};

class TestEvent final : public kernels::Event {  // all has run by the time that it is recorded
 public:
  bool done() const override { return true; }
  Task<> wait() override { co_return; }
};

class TestGate final : public kernels::Gate {
 public:
  void raise(uint32_t) override {}
  void abandon() override { abandoned_ = true; }
  bool abandoned() const override { return abandoned_; }

 private:
  std::atomic<bool> abandoned_{false};
};

class TestDevice final : public kernels::Device {
 public:
  explicit TestDevice(uint32_t threads) : stream_(threads) {}

  Result<kernels::DeviceMemory> allocate(size_t bytes) override {
    if (bytes > bytes_left) return Error{ErrorCode::kResourceExhausted, "no memory is left"};
    bytes_left -= bytes;
    // By new: tests on a real GPU have one that gives what both sides reach (tests/gpu/).
    constexpr std::align_val_t kAligned{kernels::kPageAlignment};
    void* data = ::operator new(bytes, kAligned);
    std::memset(data, 0, bytes);
    return kernels::DeviceMemory{static_cast<std::byte*>(data),
                                 bytes,
                                 {data, [kAligned](void* at) { ::operator delete(at, kAligned); }}};
  }
  Result<kernels::DeviceMemory> allocate_host(size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<kernels::Event> make_event() override { return std::make_unique<TestEvent>(); }
  std::unique_ptr<kernels::Gate> make_gate() override { return std::make_unique<TestGate>(); }
  TestStream& compute() override { return stream_; }
  kernels::Stream& copy_in() override { return stream_; }
  kernels::Stream& copy_out() override { return stream_; }
  std::string description() const override { return "test"; }
  const Error* failure() const override { return failed ? &*failed : nullptr; }

  size_t bytes_left = SIZE_MAX;  // that it still has to give; what is given back does not count
  std::optional<Error> failed;   // it does all the same what it is told to

 private:
  TestStream stream_;
};

}  // namespace spillway::model
