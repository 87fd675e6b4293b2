// The stopwatch where no GPU has a clock: the host's time, once the stream has come to its end.
#include <chrono>

#include "bench/gpu/stopwatch.h"
#include "kernels/cuda/runtime_api.h"

namespace spillway::bench {

struct Stopwatch::Parts {
  std::chrono::steady_clock::time_point from;
  cudaStream_t stream = nullptr;
};

Stopwatch::Stopwatch() : parts_(std::make_unique<Parts>()) {}
Stopwatch::~Stopwatch() = default;

void Stopwatch::start(CUstream_st*) { parts_->from = std::chrono::steady_clock::now(); }
void Stopwatch::stop(CUstream_st* stream) { parts_->stream = stream; }

double Stopwatch::seconds() {
  if (cudaStreamSynchronize(parts_->stream) != cudaSuccess) return -1;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - parts_->from).count();
}

}  // namespace spillway::bench
