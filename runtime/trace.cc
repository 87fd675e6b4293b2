#include "runtime/trace.h"

namespace spillway {

void Trace::hold() {
  if (holders_++ == 0) ring_.reserve(kEventsMax);
}

void Trace::release() {
  CHECK(holders_ > 0);
  if (--holders_ > 0) return;
  std::vector<TraceEvent>().swap(ring_);
  next_ = 0;
  lost_ = 0;
  lost_end_ = {};
}

void Trace::add(const TraceEvent& event) {
  CHECK(on());
  if (ring_.size() < kEventsMax) {
    ring_.push_back(event);
    return;
  }
  ++lost_;
  lost_end_ = ring_[next_].end;
  ring_[next_] = event;
  next_ = (next_ + 1) % kEventsMax;
}

TraceSnapshot Trace::snapshot(Clock::TimePoint begin, Clock::TimePoint end) const {
  CHECK(on());
  TraceSnapshot taken{.begin = begin, .end = end, .events = {}, .lost = 0};
  if (lost_end_ >= begin) taken.lost = lost_;
  for (size_t i = 0; i < ring_.size(); ++i) {
    const TraceEvent& event = ring_[(next_ + i) % ring_.size()];
    if (event.end >= begin && event.end <= end) taken.events.push_back(event);
  }
  return taken;
}

void keep_own(TraceSnapshot& snapshot, uint32_t tenant) {
  std::erase_if(snapshot.events, [tenant](const TraceEvent& event) {
    return event.lane == TraceLane::kRequests && event.tenant != tenant;
  });
  for (TraceEvent& event : snapshot.events) {
    if (event.lane != TraceLane::kRequests) event.arguments = {};
  }
  snapshot.others_hidden = true;
}

}  // namespace spillway
