#include "bench/gpu/stopwatch.h"

#include "kernels/cuda/runtime_api.h"

namespace spillway::bench {

struct Stopwatch::Parts {
  cudaEvent_t from = nullptr;
  cudaEvent_t to = nullptr;
  bool good = true;

  void check(cudaError_t error) { good = good && error == cudaSuccess; }
};

Stopwatch::Stopwatch() : parts_(std::make_unique<Parts>()) {
  parts_->check(cudaEventCreateWithFlags(&parts_->from, cudaEventDefault));
  parts_->check(cudaEventCreateWithFlags(&parts_->to, cudaEventDefault));
}
Stopwatch::~Stopwatch() {
  if (parts_->from != nullptr) cudaEventDestroy(parts_->from);
  if (parts_->to != nullptr) cudaEventDestroy(parts_->to);
}

void Stopwatch::start(CUstream_st* stream) { parts_->check(cudaEventRecord(parts_->from, stream)); }
void Stopwatch::stop(CUstream_st* stream) { parts_->check(cudaEventRecord(parts_->to, stream)); }

double Stopwatch::seconds() {
  float milliseconds = 0;
  parts_->check(cudaEventSynchronize(parts_->to));
  parts_->check(cudaEventElapsedTime(&milliseconds, parts_->from, parts_->to));
  return parts_->good ? milliseconds * 1e-3 : -1;
}

}  // namespace spillway::bench
