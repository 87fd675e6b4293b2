#include "runtime/timer_heap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>

namespace spillway {
namespace {

struct Timer final : TimerHeap::Entry {};

// Against a sorted map of (deadline, order of arrival).
RC_GTEST_PROP(timer_heap, pops_in_order_of_deadline_then_arrival, ()) {
  TimerHeap heap;
  std::map<std::pair<int64_t, uint64_t>, std::unique_ptr<Timer>> model;
  uint64_t order = 0;
  const auto time = [](int64_t ns) { return Clock::TimePoint(std::chrono::nanoseconds(ns)); };
  const int steps = *rc::gen::inRange(0, 200);
  for (int i = 0; i < steps; ++i) {
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
      case 1: {
        const int64_t at = *rc::gen::inRange(0, 20);
        auto& timer = model[{at, order++}] = std::make_unique<Timer>();
        heap.add(*timer, time(at));
        break;
      }
      case 2: {
        if (model.empty()) break;
        auto victim = std::next(model.begin(), *rc::gen::inRange<size_t>(0, model.size()));
        heap.remove(*victim->second);
        RC_ASSERT(!victim->second->queued());
        model.erase(victim);
        break;
      }
      case 3: {
        const int64_t now = *rc::gen::inRange(0, 20);
        TimerHeap::Entry* due = heap.pop_due(time(now));
        if (model.empty() || model.begin()->first.first > now) {
          RC_ASSERT(due == nullptr);
        } else {
          RC_ASSERT(due == model.begin()->second.get());
          model.erase(model.begin());
        }
        break;
      }
    }
    heap.check_integrity();
    RC_ASSERT(heap.size() == model.size());
    RC_ASSERT(heap.next().has_value() == !model.empty());
    if (heap.next()) RC_ASSERT(*heap.next() == time(model.begin()->first.first));
  }
  while (heap.pop_due(time(1000)) != nullptr) {
  }
}

}  // namespace
}  // namespace spillway
