// CUDA's runtime without a GPU: streams, events, copies, memory, and all that may go wrong with
// them. kernels/cuda/'s host code is compiled against it (cuda_runtime.h has the names) and calls
// the one instance there is.
//
// Driven either by step(), which lets one part of one operation of a stream that the seed chooses
// run, so that the same seed gives the same run; or by a thread a stream, for ThreadSanitizer.
// (Or at once, for a caller whose own device knows no time: whatever may run runs within the call
// that enqueues something.) Operations of different streams end in any order that events and words
// allow; copies of a batch in any order; a copy's bytes are garbage until it has ended.
//
// What CUDA would let pass, and answers with garbage or a stall, is written down (take_misuse()):
// host memory that is not registered, memory freed while an operation names it, the default stream,
// copies of a batch that depend on each other, a call that waits for the GPU where forbid_waiting()
// says that there must be none, so much enqueued behind a wait for a word that CUDA would block,
// handles and addresses that name nothing, and what spoils a stream's capture
// (simulated_capture.h). Host code that touches a GPU's memory traps (simulated_memory.h).
//
// Thread: one at a time calls the runtime and this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/prng.h"
#include "tests/emulator/cuda_runtime.h"
#include "tests/emulator/simulated_capture.h"
#include "tests/emulator/simulated_memory.h"
#include "tests/emulator/simulated_stream.h"

struct CUevent_st {
  std::shared_ptr<spillway::emulator::Recording> last;  // null: nothing was recorded yet
  spillway::emulator::CapturedEvent captured;  // recorded last while a stream captured; or none
};

namespace spillway::emulator {

struct SimulatedCudaOptions {
  uint64_t seed = 0;
  bool threads = false;  // a stream runs in a thread of its own
  uint32_t late_us = 0;  // with threads: words and events come up to so much later
  // So many operations behind a wait for a word that has not come, and CUDA blocks whoever enqueues
  // the next. A real one holds 1,024.
  uint64_t behind_a_word_max = 1000;
  bool at_once = false;        // what may run has run when the call that enqueues it returns
  int devices = 1;             // 0: as on a machine without a GPU; what one keeps as error all do
  int driver_version = 13000;  // 0: as on one without a driver
  size_t device_bytes = size_t{256} << 20;
  size_t pinned_bytes = size_t{256} << 20;
  bool write_words = true;  // what this driver can
  bool wait_words = true;
  bool batches = true;
};

class SimulatedCuda {
 public:
  // Becomes the runtime that CUDA's names call. REQUIRES: there is no other.
  explicit SimulatedCuda(const SimulatedCudaOptions& options);
  ~SimulatedCuda();  // prints misuse that nobody took, and ends the process
  SimulatedCuda(const SimulatedCuda&) = delete;
  SimulatedCuda& operator=(const SimulatedCuda&) = delete;
  static SimulatedCuda& current();  // REQUIRES: there is one

  // False: no operation can go on.
  bool step();
  void run_all() {
    while (step()) {
    }
  }
  // While held a stream's operations do not run, as if the one that runs took long.
  void hold(cudaStream_t stream, bool held) { stream->held = held; }
  // What a kernel is: runs in the stream's order, and may touch a GPU's memory.
  cudaError_t launch(cudaStream_t stream, std::function<void()> kernel);
  // A kernel of kernels/cuda/ with its arguments, on the emulator.
  cudaError_t launch(cudaStream_t stream, const kernels::cuda::LaunchShape& shape,
                     std::function<void()> kernel);

  // The call of that name that comes after `after` others fails, and does nothing.
  void fail_call(std::string call, cudaError_t error, uint32_t after = 0);
  // The kernel or copy that runs after `after` others does not end, and from then on nothing runs
  // and every call fails with `error`, until cudaDeviceReset().
  void fail_operation(cudaError_t error, uint32_t after = 0);
  // The same of one stream, which may be told so while it runs.
  void fail_stream(cudaStream_t stream, cudaError_t error, uint32_t after = 0) {
    stream->fail(error, after);
  }
  void forbid_waiting(bool forbidden) { waiting_forbidden_ = forbidden; }

  std::vector<std::string> take_misuse();
  uint64_t calls(const std::string& name) const;
  std::string left() const;  // what exists still, a line each: memory, streams, events

  // For the calls themselves (simulated_runtime.cc).
  enum class Waits : uint8_t { kNo, kForTheGpu };
  cudaError_t begin(const char* call, Waits waits = Waits::kNo);
  void report(std::string misuse) { misuse_.push_back(std::move(misuse)); }
  // Where the stream captures, into that.
  void enqueue(cudaStream_t stream, std::unique_ptr<Operation> operation);
  void spoil(Capture& capture, std::string misuse);
  void captures_begin(std::shared_ptr<Capture> capture) { captures_.push_back(std::move(capture)); }
  void captures_end(const std::shared_ptr<Capture>& capture);
  SimulatedGraphs& graphs() { return graphs_; }
  bool known(const char* call, cudaStream_t stream);  // false: reported
  bool known(const char* call, cudaEvent_t event);
  // False: a copy must not touch that, which was reported.
  bool check_copy(const char* call, const void* at, size_t bytes);
  // What would wait for ever is reported.
  cudaError_t wait_for_stream(const char* call, cudaStream_t stream) {
    return wait_for(call, {stream});
  }
  cudaError_t wait_for_device(const char* call, int device);
  // A call for the thread's own device is meant for one that has streams.
  void check_current(const char* call, int device);
  void check_unused(const char* call, const void* at, size_t bytes);
  void reset();
  cudaError_t kept_error() const {
    return static_cast<cudaError_t>(gpu_.error.load(std::memory_order_relaxed));
  }

  const SimulatedCudaOptions& options() const { return options_; }
  SimulatedMemory& memory() { return memory_; }
  cudaStream_t add_stream(int device);
  void remove_stream(cudaStream_t stream);
  cudaEvent_t add_event();
  void remove_event(cudaEvent_t event) { events_.erase(event); }

 private:
  struct CallFailure {
    std::string call;
    cudaError_t error;
    uint32_t after;
  };
  bool step_one(bool held_too);
  cudaError_t wait_for(const char* call, const std::vector<cudaStream_t>& streams);

  const SimulatedCudaOptions options_;
  Prng random_;
  SimulatedMemory memory_;
  SimulatedGpu gpu_;
  uint64_t streams_made_ = 0;
  std::map<cudaStream_t, std::unique_ptr<CUstream_st>> streams_;
  std::vector<cudaStream_t> order_;  // as made: what the seed chooses from
  std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events_;
  std::vector<std::shared_ptr<Capture>> captures_;  // under way
  SimulatedGraphs graphs_;
  std::vector<CallFailure> failures_;
  std::map<std::string, uint64_t> calls_;
  std::vector<std::string> misuse_;
  bool waiting_forbidden_ = false;
  bool told_of_an_error_ = false;  // then the caller may wait: it has nothing to run any more
};

}  // namespace spillway::emulator
