// Who awaits a CUDA device's events. While somebody does, the loop that they run on looks at the
// events' words once a turn (EngineLoop::Poller); with nobody it is not troubled.
//
// Thread: the engine's. Bound: one entry a waiting coroutine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/engine_loop.h"
#include "runtime/suspend.h"

namespace spillway::kernels::cuda {

class EventState;

class Completions final : public EngineLoop::Poller {
 public:
  ~Completions();  // REQUIRES: nobody waits

  // Resumes from `loop` once the event has reached `generation`. REQUIRES: all who wait at one time
  // wait on the same loop.
  void add(EngineLoop& loop, std::shared_ptr<EventState> event, uint32_t generation,
           Resumer resumer);
  void on_poll() override;
  size_t waiting() const { return waiting_.size(); }

 private:
  // A word that never comes does not say why: after so many looks in vain, about a millisecond,
  // CUDA is asked, which knows of errors.
  static constexpr uint32_t kLooksAQuery = 32;

  struct Waiting {
    std::shared_ptr<EventState> event;
    uint32_t generation = 0;
    Resumer resumer;
  };
  bool resume_reached();  // somebody was

  std::vector<Waiting> waiting_;  // in the order in which they came
  EngineLoop* loop_ = nullptr;    // while somebody waits
  uint32_t looks_ = 0;            // in vain, one after the other
};

}  // namespace spillway::kernels::cuda
