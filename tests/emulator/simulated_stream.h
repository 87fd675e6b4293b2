// A stream of the simulated CUDA runtime: operations in order, which a thread of its own runs, or
// whoever drives the runtime, part by part. A kernel of kernels/cuda/ runs on the emulator, with
// blocks and threads in an order from the emulator's seed (launch.h).
//
// Threads: add() and what is said to be the caller's are called by one thread; with a thread of its
// own, the rest is that one's. Nothing but events and words of memory orders one stream's
// operations before what others do, so that ThreadSanitizer sees where an order is missing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/launch_shape.h"
#include "runtime/prng.h"
#include "tests/emulator/cuda_runtime.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/simulated_memory.h"

namespace spillway::emulator {

// What all streams of a runtime share.
struct SimulatedGpu {
  SimulatedMemory& memory;
  const bool threads;
  const uint32_t late_us = 0;            // up to so much later words and events come, with threads
  std::atomic<int> error{0};             // kept: nothing runs any more
  std::atomic<int64_t> until_error{-1};  // so many kernels and copies run before `error_then`
  std::atomic<int> error_then{0};
};

using Recording = std::atomic<bool>;  // whether the stream got there

struct Capture;

struct Work {
  enum class Kind : uint8_t { kKernel, kCopies, kSet, kRecord, kWaitEvent, kWriteWord, kWaitWord };
  struct Range {
    const std::byte* at = nullptr;
    size_t bytes = 0;
  };
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };

  Kind kind = Kind::kKernel;
  std::function<void()> kernel;
  bool reaches_all = false;  // memory of every GPU; else a kernel has its own GPU's alone
  std::vector<Copy> copies;
  size_t parts_done = 0;  // of copies: two each
  Range set;              // and to what:
  int value = 0;
  std::shared_ptr<Recording> recording;
  std::atomic<uint32_t>* word = nullptr;  // and what is written, or waited for:
  uint32_t word_value = 0;
};

struct Operation : Work {
  Operation() = default;
  Operation(const Operation& other) : Work(other) {}  // what follows it stays the other's
  std::atomic<Operation*> next{nullptr};
};

}  // namespace spillway::emulator

// The handle is the stream.
struct CUstream_st {
 public:
  CUstream_st(spillway::emulator::SimulatedGpu& gpu, int device, uint64_t seed);
  ~CUstream_st();  // what has not run does not run
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  // The caller's.
  int device() const { return device_; }
  void add(std::unique_ptr<spillway::emulator::Operation> operation);
  bool idle() const { return finished_.load(std::memory_order_acquire) == added_count_; }
  // The kernel or copy of this stream that runs after `after` others breaks the GPU.
  void fail(int error, uint32_t after) {
    error_then_.store(error, std::memory_order_relaxed);
    until_error_.store(after, std::memory_order_release);
  }
  // How many of its operations stand behind a wait for a word that has not come.
  uint64_t behind_a_word();
  bool busy() const { return running_.load(std::memory_order_seq_cst); }
  // Whether an operation that has not ended names some of these bytes.
  bool names(const std::byte* at, size_t bytes);
  bool held = false;                                     // step() passes it over
  std::shared_ptr<spillway::emulator::Capture> capture;  // null: it does not capture

  // Where the runtime is driven step by step. False: nothing that may run now.
  bool runnable() const;
  void run_part();  // REQUIRES: runnable()

  // For a kernel that runs. One with defects, which stderr then names, is the end of all, as one
  // that made a bad access.
  void run_blocks(const spillway::kernels::cuda::LaunchShape& shape,
                  const std::function<void()>& body);

 private:
  using Operation = spillway::emulator::Operation;
  Operation* front() const { return head_->next.load(std::memory_order_acquire); }
  bool ready(const Operation& operation) const;
  void run_all();
  void run_whole(Operation& operation);
  bool run_copy_part(Operation& operation);  // true: that was the last
  void run_simple(Operation& operation);
  bool fails_now(const Operation& operation);
  void finish();
  void sleep(uint64_t us_max);

  spillway::emulator::SimulatedGpu& gpu_;
  const int device_;
  spillway::Prng random_;

  Operation* tail_;
  uint64_t added_count_ = 0;
  std::deque<std::pair<uint64_t, std::vector<Operation::Range>>> named_;
  struct WordWait {
    uint64_t count;  // its number among the operations, from 1
    const std::atomic<uint32_t>* word;
    uint32_t value;
  };
  std::deque<WordWait> word_waits_;  // those that may not have been passed yet

  Operation* head_;  // the last one that has ended
  std::atomic<uint64_t> finished_{0};
  std::atomic<bool> running_{false};
  std::atomic<uint32_t> wakes_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> until_error_{-1};
  std::atomic<int> error_then_{0};
  std::unique_ptr<spillway::emulator::Launcher> launcher_;  // null: no kernel of threads has run
  std::thread thread_;
};
