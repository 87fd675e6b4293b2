// Events of one device for an owner who has many pending at a time and awaits none of them: streams
// wait for them. Engine thread. As many exist as were ever pending together, which the owner
// bounds.
#pragma once

#include <deque>
#include <memory>

#include "kernels/device.h"

namespace spillway::kernels {

class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}
  EventPool(EventPool&&) = default;
  EventPool(const EventPool&) = delete;

  // Records one on the device's compute stream. It stays as it is at least until that is done.
  const Event& record() {
    if (events_.empty() || !events_.front()->done()) {
      events_.push_front(device_.make_event());
    }
    std::unique_ptr<Event> event = std::move(events_.front());
    events_.pop_front();
    device_.compute().record(*event);
    events_.push_back(std::move(event));
    return *events_.back();
  }

 private:
  Device& device_;
  std::deque<std::unique_ptr<Event>> events_;  // the one recorded longest ago first
};

}  // namespace spillway::kernels
