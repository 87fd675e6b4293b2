#include "kernels/cpu_stream.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu_gate.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

// Worker `index` of `count` copies a share that starts and ends on 4 KiB.
void copy_share(std::byte* to, const std::byte* from, size_t bytes, uint32_t index,
                uint32_t count) {
  const size_t share = ((bytes + count - 1) / count + 4095) / 4096 * 4096;
  const size_t begin = std::min(bytes, share * index);
  const size_t end = std::min(bytes, begin + share);
  if (begin < end) std::memcpy(to + begin, from + begin, end - begin);
}

}  // namespace

struct CpuStream::Operation {
  enum class Kind : uint8_t { kStart, kLaunch, kCopy, kRecord, kWait, kEnd };
  explicit Operation(Kind of) : kind(of) {}

  const Kind kind;
  Launch work;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
  std::shared_ptr<CpuEventState> event;
  uint32_t generation = 0;
  std::atomic<Operation*> next{nullptr};
};

class CpuStream::Worker final : public Team {
 public:
  Worker(CpuStream& stream, uint32_t index) : stream_(stream), index_(index) {}
  uint32_t index() const override { return index_; }
  uint32_t count() const override { return stream_.options_.threads; }
  void barrier() override { stream_.barrier_.arrive_and_wait(barrier_spin); }

  // Inside an operation the others arrive within microseconds; between two the engine has work of
  // its own to do, on few processors on the very ones we would spin on.
  SpinBudget barrier_spin{1, 50};
  SpinBudget idle_spin{1, 20};

 private:
  CpuStream& stream_;
  const uint32_t index_;
};

CpuStream::CpuStream(Options options)
    : options_(std::move(options)),
      barrier_(options_.threads),
      tail_(new Operation(Operation::Kind::kStart)),
      oldest_(tail_) {
  CHECK(options_.threads > 0);
  CHECK(options_.pin_cpus.empty() || options_.pin_cpus.size() == options_.threads);
  for (uint32_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this, i] { run(i); });
  }
}

CpuStream::~CpuStream() {
  add(std::make_unique<Operation>(Operation::Kind::kEnd));
  for (auto& thread : threads_) thread.join();
  retire_before(nullptr);
}

void CpuStream::add(std::unique_ptr<Operation> operation) {
  Operation* const added = operation.release();
  tail_->next.store(added, std::memory_order_release);
  tail_ = added;
  // Ordered before the look at sleepers_: either a sleeper sees the new count, or we see it.
  const uint32_t count = added_.fetch_add(1, std::memory_order_seq_cst) + 1;
  CHECK(count - retired_.load(std::memory_order_relaxed) <= kOperationsMax);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(added_);
}

void CpuStream::launch(Launch work) {
  auto operation = std::make_unique<Operation>(Operation::Kind::kLaunch);
  operation->work = std::move(work);
  add(std::move(operation));
}

void CpuStream::copy(void* to, const void* from, size_t bytes) {
  auto operation = std::make_unique<Operation>(Operation::Kind::kCopy);
  operation->to = static_cast<std::byte*>(to);
  operation->from = static_cast<const std::byte*>(from);
  operation->bytes = bytes;
  add(std::move(operation));
}

void CpuStream::record(Event& event) {
  auto operation = std::make_unique<Operation>(Operation::Kind::kRecord);
  operation->event = static_cast<CpuEvent&>(event).state();
  operation->generation = operation->event->begin_record();
  add(std::move(operation));
}

void CpuStream::wait(const Event& event) {
  auto operation = std::make_unique<Operation>(Operation::Kind::kWait);
  operation->event = static_cast<const CpuEvent&>(event).state();
  operation->generation = operation->event->recorded();
  add(std::move(operation));
}

void CpuStream::wait(const Gate& gate, uint32_t level) {
  auto operation = std::make_unique<Operation>(Operation::Kind::kWait);
  operation->event = static_cast<const CpuGate&>(gate).state();
  operation->generation = level;
  add(std::move(operation));
}

CpuStream::Operation* CpuStream::next_of(Operation& operation, SpinBudget& spin) {
  const auto there = [&] { return operation.next.load(std::memory_order_acquire) != nullptr; };
  if (!there() && !spin.spin_until(there)) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t added = added_.load(std::memory_order_seq_cst);
      if (there()) break;
      futex_wait(added_, added);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  return operation.next.load(std::memory_order_acquire);
}

void CpuStream::run_operation(Operation& operation, Worker& worker) {
  const bool leads = worker.index() == 0;
  switch (operation.kind) {
    case Operation::Kind::kLaunch:
      operation.work(worker);
      break;
    case Operation::Kind::kCopy:
      copy_share(operation.to, operation.from, operation.bytes, worker.index(), worker.count());
      break;
    case Operation::Kind::kWait:
      if (leads) operation.event->block_until(operation.generation, worker.idle_spin);
      break;
    case Operation::Kind::kRecord:  // the others need not wait: all before it has ended
      if (!leads) return;
      std::exchange(operation.event, nullptr)->complete(operation.generation);
      return;
    case Operation::Kind::kStart:
    case Operation::Kind::kEnd:
      break;
  }
  worker.barrier();
  if (!leads) return;
  operation.work = nullptr;  // frees what it captured before an event tells that it is over
  operation.event = nullptr;
  retire_before(&operation);
}

// All workers have arrived at `operation`: nobody looks at those before it any more.
void CpuStream::retire_before(Operation* operation) {
  uint32_t count = 0;
  while (oldest_ != operation) {
    Operation* const next = oldest_->next.load(std::memory_order_relaxed);
    delete std::exchange(oldest_, next);
    ++count;
  }
  retired_.fetch_add(count, std::memory_order_relaxed);
}

void CpuStream::run(uint32_t index) {
  const std::string name = options_.name + " " + std::to_string(index);
  pthread_setname_np(pthread_self(), name.c_str());
  if (!options_.pin_cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(options_.pin_cpus[index], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a refusal costs speed only
  }
  Worker worker(*this, index);
  Operation* operation = oldest_;
  while (operation->kind != Operation::Kind::kEnd) {
    operation = next_of(*operation, worker.idle_spin);
    run_operation(*operation, worker);
  }
}

}  // namespace spillway::kernels
