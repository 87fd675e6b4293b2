// The input rows of matrix products, rounded to int8 once for all matrices that share them.
//
// Per block of 32 inputs: scale = largest magnitude / 127 in f32, value = x * (127 / largest) to
// nearest even. Every level and any division of work gives the same bits. A block whose largest
// magnitude is below 1e-30 counts as zero; one with a NaN or an infinity gets a NaN scale, so that
// its row's products are NaN instead of garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/activation_rounding.h"
#include "kernels/cpu_level.h"
#include "kernels/device.h"

namespace spillway::kernels {

// `rows` rows of `inputs` values and their int8 form. Plain pointers into an ActivationBuffer.
struct Activations {
  CpuLevel level = CpuLevel::kBaseline;
  uint32_t rows = 0;
  uint32_t inputs = 0;
  const float* x =
      nullptr;          // (rows, x_stride): the caller's rows, which float weights use directly
  size_t x_stride = 0;  // floats from row to row
  int8_t* values = nullptr;           // (row, inputs)
  float* scales = nullptr;            // (row, block)
  int32_t* biases = nullptr;          // (row, block): -128 * sum of values
  float* scaled_sums = nullptr;       // (row, block): scale * sum of values
  int32_t* half_biases = nullptr;     // (row, block, 2): as biases, per 16 inputs
  float* half_scaled_sums = nullptr;  // (row, block, 2)

  uint32_t blocks() const { return inputs / 32; }
};

// Memory for the int8 form, reused from product to product. Owned by whoever runs the forward pass.
class ActivationBuffer {
 public:
  // Room for rows * inputs <= values_max, counted in products of the largest step.
  ActivationBuffer(CpuLevel level, size_t values_max);

  // A view for `rows` rows at `x`. Cheap, changes nothing; every worker may make its own, and views
  // of one buffer share memory: the next quantize() overwrites what the one before wrote.
  // REQUIRES: rows * inputs <= values_max. If inputs is no multiple of 32 only float matrices can
  // use the view.
  Activations view(const float* x, size_t x_stride, uint32_t rows, uint32_t inputs) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  CpuLevel level_;
  size_t values_max_;
  std::unique_ptr<std::byte[], Free> memory_;
};

// Rounds this worker's share of the rows. Every worker of a launch calls it, and matmul() may read
// the result after a barrier. Not needed when all matrices that follow are of float types.
// REQUIRES: inputs is a multiple of 32.
void quantize(Team& team, const Activations& to);

// The same for rows [first, end), for callers that divide the work themselves.
void quantize_rows(const Activations& to, uint32_t first, uint32_t end);

}  // namespace spillway::kernels
