// A stream at once, on the simulated runtime: what may run runs within the call that enqueues it.
#include "runtime/check.h"
#include "tests/emulator/simulated_cuda.h"
#include "tests/kernels/cuda/stream_at_once.h"

namespace spillway::kernels::cuda {

struct StreamAtOnce::Parts {
  emulator::SimulatedCuda cuda{{.at_once = true}};
  cudaStream_t stream = nullptr;
};

StreamAtOnce::StreamAtOnce() : parts_(std::make_unique<Parts>()) {
  CHECK(cudaStreamCreateWithFlags(&parts_->stream, cudaStreamNonBlocking) == cudaSuccess);
}
StreamAtOnce::~StreamAtOnce() = default;

CUstream_st* StreamAtOnce::get() const { return parts_->stream; }
int StreamAtOnce::finish() { return cudaStreamSynchronize(parts_->stream); }
bool StreamAtOnce::can_fail() { return true; }
uint64_t StreamAtOnce::launches() const { return parts_->cuda.calls("launch"); }
void StreamAtOnce::fail_in(uint64_t launches) {
  parts_->cuda.fail_call("launch", cudaErrorLaunchFailure, static_cast<uint32_t>(launches));
}

}  // namespace spillway::kernels::cuda
