// Enqueues a GPU's operators one after the other, up to the first that fails.
#pragma once

#include "kernels/cuda/operators.h"

namespace spillway::model {

// Where launches run: one thread at a time.
class GpuOperators {
 public:
  explicit GpuOperators(CUstream_st* stream) : stream_(stream) {}

  template <class Args>
  void run(const char* name, int (*enqueue)(CUstream_st*, const Args&), const Args& args) {
    if (failed_ != nullptr) return;
    error_ = enqueue(stream_, args);
    if (error_ != 0) failed_ = name;
  }
  const char* failed() const { return failed_; }  // the operator's name; null: none
  int error() const { return error_; }            // a cudaError_t
  void forget_failure() { failed_ = nullptr; }

 private:
  CUstream_st* stream_;
  const char* failed_ = nullptr;
  int error_ = 0;
};

}  // namespace spillway::model
