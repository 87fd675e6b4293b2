#include "tests/sim/sim_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/check.h"
#include "tests/sim/sim_disk.h"

namespace spillway::sim {
namespace {

class TeamOfOne final : public kernels::Team {
 public:
  uint32_t index() const override { return 0; }
  uint32_t count() const override { return 1; }
  void barrier() override {}
};

}  // namespace

struct SimEvent::WaitOp {
  SimEvent& event;
  void start(Resumer resumer) {
    event.waiters_.push_back(std::make_unique<Resumer>(std::move(resumer)));
  }
};

Task<> SimEvent::wait() {
  while (!done()) {
    WaitOp op{*this};
    co_await suspend(op);
  }
}

void SimStream::push(Operation operation, Clock::Duration takes) {
  if (timed_ != nullptr && operations_.empty()) head_since_ = timed_->clock_->now();
  operation.takes = takes;
  operations_.push_back(std::move(operation));
}

void SimStream::launch(kernels::Launch work) {
  Operation operation{[work = std::move(work)] {
    TeamOfOne team;
    work(team);
  }};
  operation.writes = true;
  push(std::move(operation), timed_ == nullptr ? Clock::Duration{} : timed_->speed_.launch_time());
}

void SimStream::copy(void* to, const void* from, size_t bytes) {
  Operation operation{[=] { std::memcpy(to, from, bytes); }};
  operation.copy = {static_cast<const std::byte*>(from), static_cast<const std::byte*>(to)};
  operation.writes = true;
  Clock::Duration takes{};
  if (timed_ != nullptr && timed_->speed_.copy_bytes_per_s > 0) {
    const double seconds = static_cast<double>(bytes) / timed_->speed_.copy_bytes_per_s;
    takes = std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
  push(std::move(operation), takes);
}

void SimStream::record(kernels::Event& event) {
  auto& target = static_cast<SimEvent&>(event);
  CHECK(target.done());
  ++target.recorded_;
  ++recorded_;
  push({[&target] {
         ++target.completed_;
         for (auto& waiter : std::exchange(target.waiters_, {})) {
           std::move(*waiter).resume();
         }
       }},
       {});
}

void SimStream::wait(const kernels::Event& event) {
  const auto& source = static_cast<const SimEvent&>(event);
  push({[] {}, &source, source.recorded_}, {});
}

void SimStream::wait(const kernels::Gate& gate, uint32_t level) {
  Operation operation{[] {}};
  operation.gate = static_cast<const SimGate&>(gate).level_;
  operation.level = level;
  push(std::move(operation), {});
}

std::vector<SimStream::Copy> SimStream::copies() const {
  std::vector<Copy> copies;
  for (const Operation& operation : operations_) {
    if (operation.copy.to != nullptr) copies.push_back(operation.copy);
  }
  return copies;
}

bool SimStream::unblocked() const {
  if (operations_.empty()) return false;
  if (ended_) return true;
  const Operation& first = operations_.front();
  if (first.gate != nullptr && *first.gate < first.level) return false;
  return first.after == nullptr || first.after->completed_ >= first.after_count;
}

bool SimStream::runnable() const {
  if (!unblocked()) return false;
  return timed_ == nullptr || head_since_ + operations_.front().takes <= timed_->clock_->now();
}

std::optional<Clock::TimePoint> SimStream::next_due() const {
  if (timed_ == nullptr || !unblocked()) return std::nullopt;
  return head_since_ + operations_.front().takes;
}

void SimStream::run_one() {
  const Operation first = std::move(operations_.front());
  operations_.pop_front();
  if (timed_ != nullptr) head_since_ = timed_->clock_->now();
  if (!ended_ || !first.writes) first.run();
}

void SimDevice::fail() {
  failure_ = Error{ErrorCode::kUnavailable, "the simulated device has ended"};
  for (SimStream& stream : streams_) stream.ended_ = true;
}

void SimDevice::replace() {
  failure_.reset();
  for (SimStream& stream : streams_) stream.ended_ = false;
}

void SimDevice::set_speed(const Clock& clock, Speed speed) {
  clock_ = &clock;
  speed_ = std::move(speed);
  for (SimStream& stream : streams_) stream.timed_ = this;
}

std::optional<Clock::TimePoint> SimDevice::next_due() const {
  std::optional<Clock::TimePoint> first;
  for (const SimStream& stream : streams_) {
    const auto due = stream.next_due();
    if (due && (!first || *due < *first)) first = due;
  }
  return first;
}

Result<kernels::DeviceMemory> SimDevice::allocate(size_t bytes) {
  if (!own_memory) return allocate_host(bytes);
  void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  auto* const data = static_cast<std::byte*>(at);
  blocks_->push_back({data, bytes});
  std::shared_ptr<void> owner(data, [blocks = blocks_, bytes](void* mine) {
    std::erase_if(*blocks, [mine](const auto& block) { return block.data() == mine; });
    munmap(mine, bytes);
  });
  return kernels::DeviceMemory{data, bytes, std::move(owner)};
}

void SimDevice::let_touch(bool may) const {
  for (const auto& block : *blocks_) {
    CHECK(mprotect(block.data(), block.size(), may ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
  }
}

Result<kernels::DeviceMemory> SimDevice::allocate_host(size_t bytes) {
  const size_t rounded = (bytes + 4095) / 4096 * 4096;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(4096, rounded));
  CHECK(data != nullptr);
  std::memset(data, 0, rounded);
  return kernels::DeviceMemory{data, bytes, std::shared_ptr<void>(data, std::free)};
}

bool SimDevice::run_one() {
  const uint64_t first = random_at(seed_, 0, choices_++) % 3;
  for (uint64_t i = 0; i < 3; ++i) {
    SimStream& stream = streams_[(first + i) % 3];
    if (!stream.runnable()) continue;
    let_touch(true);
    stream.run_one();
    let_touch(false);
    return true;
  }
  return false;
}

void SimParker::park(std::optional<std::chrono::nanoseconds> timeout) {
  before_park();
  const bool disk_first = disk != nullptr && choices_.below(2) == 0;
  if (disk_first && disk->run_one()) return;
  if (run_device()) return;
  const auto not_after = [&](std::optional<Clock::TimePoint> due) {
    if (!due) return;
    const auto until = std::max(*due - clock_.now(), Clock::Duration::zero());
    timeout = timeout ? std::min(*timeout, until) : until;
  };
  if (disk != nullptr) {
    if (disk->run_one()) return;
    not_after(disk->next_due());
  }
  not_after(device_.next_due());
  if (timeout) {
    clock_.advance(*timeout);
    return;
  }
  const bool somebody_goes_on = when_idle != nullptr;
  CHECK(somebody_goes_on);
  when_idle();
}

}  // namespace spillway::sim
