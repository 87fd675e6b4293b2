// A device that ended, and what the step loop makes of it: nobody's request ends for that, and no
// bit of an answer changes.
//
//   works -> clearing -> rebuilding -> works
//                            |------> absent -> (a request comes, not too soon) -> rebuilding
//
// clearing: what was in its pages is lost, so all of them are dropped, the step that ran as well,
// and who ran waits again, with the tokens that were drawn so far. Transfers that still name pages
// end by themselves, as failed ones: on a device that has ended none takes long. rebuilding: the
// runner puts a fresh device in its place, on a thread of its own, while the loop still takes
// requests, and ends those that are cancelled. Then the pools are allocated, and all is as after a
// start: prefixes come from the tiers below, or are computed again.
//
// A request that was in more than kReplaysMax steps that a device did not survive is not tried
// again, for it may be what ends devices.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/check.h"
#include "runtime/worker_pool.h"
#include "scheduler/step_loop.h"

namespace spillway::scheduler {
namespace {

constexpr uint32_t kReplaysMax = 2;
// Between two tries to have a device again, the second twice as long as the first, and so on.
constexpr std::chrono::seconds kFirstPause(1), kPauseMax(60);

}  // namespace

// False: there is none to work with, and all that can be done about that now has been.
bool StepLoop::device_works() {
  if (device_state_ == DeviceState::kWorks) {
    if (parts_.device.failure() == nullptr) return true;
    lose_device();
  }
  if (device_state_ == DeviceState::kAbsent) try_again();
  if (device_state_ != DeviceState::kClearing) return false;
  if (!parts_.cache.drop_all()) {
    CHECK(parts_.tiers != nullptr);
    parts_.tiers->wake_soon();  // transfers hold some
    return false;
  }
  device_state_ = DeviceState::kRebuilding;
  rebuild_scope_.spawn(rebuild_device());
  return false;
}

void StepLoop::lose_device() {
  lost_why_ = parts_.device.failure()->message;
  device_state_ = DeviceState::kClearing;
  ++counters_.devices_lost;
  spdlog::error("device state=lost running={} waiting={}: {}; its pages are gone", running_.size(),
                waiting_.size(), lost_why_);
  for (auto& prefetch : prefetches_) end_prefetch(*prefetch);
  prefetches_.clear();
  for (LiveSequence* sequence : std::exchange(running_, {})) replay(*sequence);
  if (parts_.tiers != nullptr) parts_.tiers->device_lost();
  admission_paused_ = false;
  no_room_since_.reset();
}

// It waits for its turn with all its tokens; what it had in pages is lost.
void StepLoop::replay(LiveSequence& sequence) {
  CHECK(sequence.phase == Phase::kRunning);
  end_load(sequence);
  parts_.cache.release(std::move(sequence.pages));
  sequence.pages = nullptr;
  sequence.kept_tokens = 0;
  sequence.replayed = true;
  wait_again(sequence);
  ++sequence.request->usage.preemptions;
  ++counters_.replayed;
}

// The device did not survive the step: it never was.
void StepLoop::drop_lost_step() {
  ++counters_.steps;
  for (LiveSequence* sequence : std::exchange(stepping_, {})) {
    if (sequence->under != nullptr) abandon_under_load(*sequence);
    LiveRequest& request = *sequence->request;
    // Once for a request with several choices in the step.
    if (std::exchange(request.lost_in_step, counters_.steps) == counters_.steps) continue;
    if (++request.losses <= kReplaysMax) continue;
    finish_all(request, FinishReason::kError,
               "each of " + std::to_string(request.losses) +
                   " times that this request was computed the device failed: " +
                   parts_.device.failure()->message);
  }
  sweep();
}

Task<> StepLoop::rebuild_device() {
  const Clock::TimePoint began = parts_.loop.clock().now();
  Result<std::string> rebuilt =
      Error{ErrorCode::kUnsupported, "nothing can take the place of a device that has ended"};
  if (parts_.pools != nullptr) {
    uint64_t orphans = 0;
    for (const cache::GroupStats& group : parts_.cache.stats().groups) orphans += group.orphaned;
    parts_.pools->drop(parts_.ring, orphans > 0);
    step_done_.reset();
    WorkerPool worker({.threads = 1, .jobs_max = 1});
    std::function<Result<std::string>()> work = [this] { return parts_.runner.rebuild(); };
    rebuilt = co_await worker.run(std::move(work));
    const Result<> allocated = rebuilt ? parts_.pools->allocate() : Result<>();
    if (!allocated) rebuilt = allocated.error();
  }
  if (!rebuilt) {
    device_absent(rebuilt.error());
    co_return;
  }
  step_done_ = parts_.device.make_event();
  if (parts_.ring != nullptr) (void)parts_.pools->register_with(*parts_.ring);
  parts_.page_memory = parts_.pools->bases();
  parts_.cache.move_to(parts_.page_memory);
  parts_.runner.bind_pages(parts_.page_memory);
  device_state_ = DeviceState::kWorks;
  rebuild_pause_ = {};
  ++counters_.devices_rebuilt;
  const std::chrono::duration<double> took = parts_.loop.clock().now() - began;
  spdlog::warn("device state=rebuilt seconds={:.1f} waiting={}: {}", took.count(), waiting_.size(),
               *rebuilt);
  look_again();
}

// There is none, and whoever is here ends with that: to wait for one might be for ever.
void StepLoop::device_absent(const Error& why) {
  device_state_ = DeviceState::kAbsent;
  ++counters_.rebuilds_failed;
  rebuild_pause_ = std::clamp<Clock::Duration>(2 * rebuild_pause_, kFirstPause, kPauseMax);
  rebuild_at_ = parts_.loop.clock().now() + rebuild_pause_;
  absent_why_ = why.message;
  spdlog::error("device state=absent: {}; requests end with an error", absent_why_);
  end_without_device();
  look_again();
}

void StepLoop::end_without_device() {
  std::vector<LiveRequest*> open;
  for (auto& [id, request] : requests_) open.push_back(request.get());
  for (LiveRequest* request : open) {
    finish_all(*request, FinishReason::kError,
               "the device failed (" + lost_why_ + ") and none has taken its place (" +
                   absent_why_ + "); try again later");
  }
  sweep();
}

// A request is a reason to try once more, if the last time was not just now.
void StepLoop::try_again() {
  if (requests_.empty() || shutting_down_) return;
  if (parts_.pools == nullptr || parts_.loop.clock().now() < rebuild_at_) {
    return end_without_device();
  }
  device_state_ = DeviceState::kRebuilding;
  rebuild_scope_.spawn(rebuild_device());
}

}  // namespace spillway::scheduler
