#include "kernels/cuda/runtime_api.h"
#include "runtime/check.h"
#include "tests/kernels/cuda/stream_at_once.h"

namespace spillway::kernels::cuda {

struct StreamAtOnce::Parts {
  cudaStream_t stream = nullptr;
};

StreamAtOnce::StreamAtOnce() : parts_(std::make_unique<Parts>()) {
  CHECK(cudaStreamCreateWithFlags(&parts_->stream, cudaStreamNonBlocking) == cudaSuccess);
}
StreamAtOnce::~StreamAtOnce() { cudaStreamDestroy(parts_->stream); }

CUstream_st* StreamAtOnce::get() const { return parts_->stream; }
int StreamAtOnce::finish() { return cudaStreamSynchronize(parts_->stream); }
bool StreamAtOnce::can_fail() { return false; }
uint64_t StreamAtOnce::launches() const { return 0; }
void StreamAtOnce::fail_in(uint64_t) { CHECK(can_fail()); }

}  // namespace spillway::kernels::cuda
