#include "kernels/cuda/cuda_stream.h"

#include <utility>

#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/cuda_gate.h"
#include "runtime/check.h"

namespace spillway::kernels::cuda {
namespace {

class TeamOfOne final : public Team {
 public:
  uint32_t index() const override { return 0; }
  uint32_t count() const override { return 1; }
  void barrier() override {}
};

bool overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

CudaStream::CudaStream(std::shared_ptr<CudaParts> parts, cudaStream_t native, uint32_t index)
    : parts_(std::move(parts)), native_(native), index_(index) {
  CHECK(index < kStreams);
}

CudaStream::~CudaStream() {
  send_copies();
  Health& health = *parts_->health;
  if (health.lost()) return;  // and the stream with it
  if (health.enter()) {
    health.ok(cudaStreamSynchronize(native_), "cudaStreamSynchronize");
  } else {
    cudaSetDevice(health.device());  // the thread's own may be another
  }
  if (!health.lost()) health.ok(cudaStreamDestroy(native_), "cudaStreamDestroy");
}

void CudaStream::launch(Launch work) {
  send_copies();
  if (!parts_->health->enter()) return;
  TeamOfOne team;
  work(team);
}

void CudaStream::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (to_.size() == kCopiesMax ||
      depends(static_cast<const std::byte*>(to), static_cast<const std::byte*>(from), bytes)) {
    send_copies();
  }
  to_.push_back(to);
  from_.push_back(from);
  bytes_.push_back(bytes);
}

bool CudaStream::depends(const std::byte* to, const std::byte* from, size_t bytes) const {
  for (size_t i = 0; i < to_.size(); ++i) {
    const auto* const its_to = static_cast<const std::byte*>(to_[i]);
    const auto* const its_from = static_cast<const std::byte*>(from_[i]);
    if (overlap(to, bytes, its_to, bytes_[i]) || overlap(to, bytes, its_from, bytes_[i]) ||
        overlap(from, bytes, its_to, bytes_[i])) {
      return true;
    }
  }
  return false;
}

void CudaStream::send_copies() {
  if (to_.empty()) return;
  Health& health = *parts_->health;
  const bool sent = !health.enter() || (to_.size() > 1 && batches_ && send_batch());
  for (size_t i = 0; i < to_.size() && !sent; ++i) {
    if (!health.ok(cudaMemcpyAsync(to_[i], from_[i], bytes_[i], cudaMemcpyDefault, native_),
                   "cudaMemcpyAsync")) {
      break;
    }
  }
  to_.clear();
  from_.clear();
  bytes_.clear();
}

bool CudaStream::send_batch() {
#if CUDART_VERSION >= 13000
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  how.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  const cudaError_t refused = cudaMemcpyBatchAsync(to_.data(), from_.data(), bytes_.data(),
                                                   to_.size(), &how, &first, 1, native_);
  batches_ = refused != cudaErrorNotSupported && refused != cudaErrorCallRequiresNewerDriver;
  if (!batches_) {
    cudaGetLastError();  // else CUDA tells of it again where nothing is wrong
    return false;
  }
  parts_->health->ok(refused, "cudaMemcpyBatchAsync");
  return true;
#else
  batches_ = false;  // other arguments before CUDA 13
  return false;
#endif
}

void CudaStream::record(Event& event) {
  send_copies();
  static_cast<CudaEvent&>(event).state().record(native_);
}

void CudaStream::wait(const Event& event) {
  send_copies();
  EventState& state = static_cast<const CudaEvent&>(event).state();
  Health& health = *parts_->health;
  if (state.done() || !health.enter()) return;
  health.ok(cudaStreamWaitEvent(native_, state.native(), 0), "cudaStreamWaitEvent");
}

void CudaStream::wait(const Gate& gate, uint32_t level) {
  send_copies();
  static_cast<const CudaGate&>(gate).hold(native_, index_, level);
}

}  // namespace spillway::kernels::cuda
