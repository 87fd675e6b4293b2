// y = x W^T of many rows by a library, for those who ask for its speed (--no-batch-invariant). What
// is given up: the library chooses by the number of rows in which order it sums, so a row's bits
// hang on who else is in the step. Few rows stay with the kernels of matmul.cuh and
// matmul_floats.cuh.
//
// Weights are read as plain rows of 16-bit floats, activations too: F16 where the weights are F16,
// else BF16, whose range is f32's. They are made for each product, in memory that the next one
// takes again (unpack.cuh): a copy of all weights, four times as large as Q4's, would take its room
// from the KV pages. A matrix of more than that memory holds is multiplied part by part, by
// outputs. F32 weights stay with our kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/operators.h"
#include "kernels/device.h"
#include "runtime/result.h"

namespace spillway::kernels::cuda {

// The most that any product has.
struct ProductLimits {
  uint32_t rows = 0;
  uint32_t inputs = 0;
  size_t elements = 0;  // outputs * inputs
};

struct LibraryProductArgs {
  DeviceMatrix w;
  const float* x = nullptr;  // (rows, w.inputs)
  float* y = nullptr;        // (rows, w.outputs), 16-byte aligned
  uint32_t rows = 0;
};

// Where launches run, one thread at a time, but for reserve().
class LibraryProducts {
 public:
  virtual ~LibraryProducts() = default;

  // Takes all device memory that products need; once, before the first. Waits for the device.
  // Fails where it has too little.
  virtual Result<> reserve(Device& device, const ProductLimits& limits) = 0;
  // Whether it multiplies so many rows by such a matrix; else our kernels do. Always the same
  // answer for the same type and sizes: the library is asked once, and its answer kept. That waits
  // for nothing and enqueues nothing.
  virtual bool takes(const DeviceMatrix& w, uint32_t rows) = 0;
  // Enqueues on the stream; may be captured. 0, or a cudaError_t: what the library refused is
  // cudaErrorUnknown, and the log has its own word for it. REQUIRES: takes(args.w, args.rows).
  virtual int enqueue(const LibraryProductArgs& args) = 0;
  // How many kernels that enqueues, at most.
  virtual uint64_t launches_max(const DeviceMatrix& w) const = 0;
};

struct LibraryProductOptions {
  // Fewer rows stay with our kernels. Making 16-bit weights of quantised ones costs what a product
  // by a few dozen rows does, ours reads them as they are; but ours sums floats without tensor
  // cores. (From sketches: unpack.cuh, matmul_many.cuh. Not measured.)
  uint32_t quantized_rows_min = 256;
  uint32_t float_rows_min = 32;
  size_t weight_bytes = size_t{128} << 20;  // of 16-bit weights at once
  size_t workspace_bytes = size_t{32} << 20;
};

// cuBLASLt's, on `stream`, whose device is the calling thread's: within a launch(). kUnavailable:
// the library is not there, is another version's, or this build knows none; the message says what
// to install.
Result<std::unique_ptr<LibraryProducts>> make_library_products(
    CUstream_st* stream, const LibraryProductOptions& options = {});

}  // namespace spillway::kernels::cuda
