#include "kernels/cuda/completions.h"

#include <cstddef>
#include <utility>

#include "kernels/cuda/cuda_event.h"
#include "runtime/check.h"

namespace spillway::kernels::cuda {

Completions::~Completions() { CHECK(waiting_.empty()); }

void Completions::add(EngineLoop& loop, std::shared_ptr<EventState> event, uint32_t generation,
                      Resumer resumer) {
  if (waiting_.empty()) {
    loop_ = &loop;
    looks_ = 0;
    loop.add_poller(*this);
  }
  CHECK(loop_ == &loop);
  waiting_.push_back({std::move(event), generation, std::move(resumer)});
}

bool Completions::resume_reached() {
  size_t left = 0;
  for (Waiting& one : waiting_) {
    if (one.event->reached(one.generation)) {
      one.resumer.resume();
    } else if (Waiting& place = waiting_[left++]; &place != &one) {
      place = std::move(one);
    }
  }
  const bool somebody = left != waiting_.size();
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(left), waiting_.end());
  return somebody;
}

void Completions::on_poll() {
  if (resume_reached()) {
    looks_ = 0;
  } else if (++looks_ % kLooksAQuery == 0) {
    waiting_.front().event->ask();  // of an error the next look tells everybody
  }
  if (waiting_.empty()) std::exchange(loop_, nullptr)->remove_poller(*this);
}

}  // namespace spillway::kernels::cuda
