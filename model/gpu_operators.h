// Enqueues a GPU's operators one after the other, up to the first that is refused.
#pragma once

#include <functional>
#include <utility>

#include "kernels/cuda/operators.h"

namespace spillway::model {

// Where launches run: one thread at a time.
class GpuOperators {
 public:
  // `take_error`, if any, is told of each operator that was refused.
  using TakeError = std::function<void(const char* operator_name, int error)>;
  GpuOperators(CUstream_st* stream, TakeError take_error)
      : stream_(stream), take_error_(std::move(take_error)) {}

  template <class Args>
  void run(const char* name, int (*enqueue)(CUstream_st*, const Args&), const Args& args) {
    run_by(name, kLaunchesMax, [&](CUstream_st* stream) { return enqueue(stream, args); });
  }
  // The same of what `enqueue` puts on the stream: so many kernels at most.
  template <class Enqueue>
  void run_by(const char* name, uint64_t launches_max, const Enqueue& enqueue) {
    if (failed_ != nullptr) return;
    launches_ += launches_max;
    error_ = enqueue(stream_);
    if (error_ == 0) return;
    failed_ = name;
    if (take_error_) take_error_(name, error_);
  }
  const char* failed() const { return failed_; }   // the operator's name; null: none
  int error() const { return error_; }             // a cudaError_t
  uint64_t launches() const { return launches_; }  // so far, at most
  void forget_failure() { failed_ = nullptr; }

 private:
  static constexpr uint64_t kLaunchesMax = 3;  // of an operator

  CUstream_st* stream_;
  TakeError take_error_;
  const char* failed_ = nullptr;
  int error_ = 0;
  uint64_t launches_ = 0;
};

}  // namespace spillway::model
