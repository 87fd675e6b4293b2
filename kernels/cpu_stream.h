// One in-order stream of the CPU device: a linked list of operations and a team of threads that
// walk it in step. Launches and copies are shared out; events are worker 0's. Every operation
// that others must not overtake ends in a barrier.
//
// Threads: operations are added by one thread (the engine's). Workers that find nothing to do spin
// for some microseconds, then sleep: an idle stream uses no CPU.
// Measured (bench/runtime_bench, 2 processors that others use too; medians): from launch() on a
// sleeping team to its last worker's start 6 us with one worker, 14 us with two; while the team
// still spins, 1 us and 2 to 5 us. A launch, its event and the engine's wake-up: 9 to 16 us, so
// with steps of milliseconds there is nothing to win by making the engine one of the team. Bound:
// kOperationsMax queued; who enqueues bounds what it has in flight (CHECK).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu_event.h"
#include "kernels/device.h"
#include "kernels/team_barrier.h"

namespace spillway::kernels {

class CpuStream final : public Stream {
 public:
  static constexpr uint32_t kOperationsMax = 1u << 16;

  struct Options {
    std::string name;  // of its threads, up to 10 characters
    uint32_t threads = 1;
    std::vector<uint32_t> pin_cpus;  // worker i runs on pin_cpus[i]; empty: anywhere
  };
  explicit CpuStream(Options options);
  ~CpuStream() override;  // runs what is queued, then joins its threads

  void launch(Launch work) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void wait(const Gate& gate, uint32_t level) override;

 private:
  struct Operation;
  class Worker;

  void add(std::unique_ptr<Operation> operation);
  void run(uint32_t index);
  void run_operation(Operation& operation, Worker& worker);
  Operation* next_of(Operation& operation, SpinBudget& spin);
  void retire_before(Operation* operation);

  const Options options_;
  TeamBarrier barrier_;
  Operation* tail_;                             // the last one added; engine thread
  Operation* oldest_;                           // the first one not freed yet; worker 0
  alignas(64) std::atomic<uint32_t> added_{0};  // what idle workers sleep on
  std::atomic<uint32_t> sleepers_{0};
  alignas(64) std::atomic<uint32_t> retired_{0};
  std::vector<std::thread> threads_;
};

}  // namespace spillway::kernels
