#include "tests/sim/sim_device.h"

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

void SimStream::launch(kernels::Launch work) {
  operations_.push_back({[work = std::move(work)] {
                           TeamOfOne team;
                           work(team);
                         },
                         nullptr, 0});
}

void SimStream::copy(void* to, const void* from, size_t bytes) {
  const Copy copy{static_cast<const std::byte*>(from), static_cast<const std::byte*>(to)};
  operations_.push_back({[=] { std::memcpy(to, from, bytes); }, nullptr, 0, copy});
}

void SimStream::record(kernels::Event& event) {
  auto& target = static_cast<SimEvent&>(event);
  CHECK(target.done());
  ++target.recorded_;
  operations_.push_back({[&target] {
                           ++target.completed_;
                           for (auto& waiter : std::exchange(target.waiters_, {})) {
                             std::move(*waiter).resume();
                           }
                         },
                         nullptr, 0});
}

void SimStream::wait(const kernels::Event& event) {
  const auto& source = static_cast<const SimEvent&>(event);
  operations_.push_back({[] {}, &source, source.recorded_});
}

std::vector<SimStream::Copy> SimStream::copies() const {
  std::vector<Copy> copies;
  for (const Operation& operation : operations_) {
    if (operation.copy.to != nullptr) copies.push_back(operation.copy);
  }
  return copies;
}

bool SimStream::runnable() const {
  if (operations_.empty()) return false;
  const Operation& first = operations_.front();
  return first.after == nullptr || first.after->completed_ >= first.after_count;
}

void SimStream::run_one() {
  const Operation first = std::move(operations_.front());
  operations_.pop_front();
  first.run();
}

Result<kernels::DeviceMemory> SimDevice::allocate(size_t bytes) {
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
    stream.run_one();
    return true;
  }
  return false;
}

void SimParker::park(std::optional<std::chrono::nanoseconds> timeout) {
  before_park();
  const bool disk_first = disk != nullptr && choices_.below(2) == 0;
  if (disk_first && disk->run_one()) return;
  if (device_.run_one()) return;
  if (disk != nullptr) {
    if (disk->run_one()) return;
    if (const auto due = disk->next_due()) {
      const auto until = std::max(*due - clock_.now(), Clock::Duration::zero());
      timeout = timeout ? std::min(*timeout, until) : until;
    }
  }
  if (timeout) {
    clock_.advance(*timeout);
    return;
  }
  const bool somebody_goes_on = when_idle != nullptr;
  CHECK(somebody_goes_on);
  when_idle();
}

}  // namespace spillway::sim
