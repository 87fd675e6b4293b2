#include "kernels/cuda/cuda_event.h"

#include <boost/asio/this_coro.hpp>
#include <utility>

#include "runtime/check.h"
#include "runtime/engine_loop.h"
#include "runtime/suspend.h"

namespace spillway::kernels::cuda {

EventState::EventState(std::shared_ptr<CudaParts> parts) : parts_(std::move(parts)) {
  Health& health = *parts_->health;
  if (!health.enter()) return;
  if (!health.ok(cudaEventCreateWithFlags(&native_, cudaEventDisableTiming),
                 "cudaEventCreateWithFlags")) {
    native_ = nullptr;
    return;
  }
  if (parts_->values.write != nullptr) word_ = parts_->words.take();
}

EventState::~EventState() {
  Health& health = *parts_->health;
  if (native_ != nullptr && !health.lost())
    health.ok(cudaEventDestroy(native_), "cudaEventDestroy");
  if (word_.host != nullptr) parts_->words.give_back(word_);
}

void EventState::record(cudaStream_t stream) {
  CHECK(done());
  Health& health = *parts_->health;
  ++recorded_;
  if (!health.enter()) return;
  // The word before CUDA's event: whoever learns from another stream, which waited for the latter,
  // that this point has been passed finds the word written.
  if (word_.host != nullptr && !health.ok(parts_->values.write(stream, word_.device, recorded_,
                                                               CU_STREAM_WRITE_VALUE_DEFAULT),
                                          "cuStreamWriteValue32")) {
    return;
  }
  health.ok(cudaEventRecord(native_, stream), "cudaEventRecord");
}

bool EventState::reached(uint32_t generation) {
  if (parts_->health->ended() || native_ == nullptr) return true;
  if (word_.host == nullptr) return generation != recorded_ || asked_ == recorded_ || ask();
  const uint32_t written = word_.host->load(std::memory_order_acquire);
  return static_cast<int32_t>(written - generation) >= 0;
}

bool EventState::ask() {
  parts_->health->doubt();
  if (parts_->health->ended()) return true;
  const cudaError_t answer = cudaEventQuery(native_);
  if (answer == cudaErrorNotReady) return false;
  if (parts_->health->ok(answer, "cudaEventQuery")) asked_ = recorded_;
  return true;
}

namespace {

struct WaitOp {
  std::shared_ptr<EventState> event;
  EngineLoop& loop;
  void start(Resumer resumer) {
    event->parts()->completions.add(loop, event, event->recorded(), std::move(resumer));
  }
};

}  // namespace

CudaEvent::~CudaEvent() { CHECK(state_->done()); }

Task<> CudaEvent::wait() {
  const std::shared_ptr<EventState> state = state_;
  if (state->done()) co_return;
  const auto executor = co_await asio::this_coro::executor;
  WaitOp op{state, EngineLoop::of(executor)};
  co_await suspend(op);
}

}  // namespace spillway::kernels::cuda
