// The plain twin of every matrix product: slow, in the order that matmul.h states.
#include <cmath>
#include <cstring>

#include "kernels/half.h"
#include "kernels/iq4_nl.h"
#include "kernels/matmul.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

// a * b + c as the level rounds it: once with FMA, twice without.
struct FusedStep {
  static float madd(float a, float b, float c) { return std::fma(a, b, c); }
};
struct SeparateStep {
  static float madd(float a, float b, float c) { return a * b + c; }
};

int32_t dot_half(const PackedFormat& format, const ColumnBlock& w, const int8_t* x, uint32_t half) {
  int32_t dot = 0;
  for (uint32_t i = 16 * half; i < 16 * half + 16; ++i) {
    const int32_t code =
        format.is_table ? kIq4NlValues[w.codes[i]] : w.codes[i] - int32_t{format.zero};
    dot += code * x[i];
  }
  return dot;
}

// Adds block `b` of a column to one row's sum.
template <class Step>
float add_block(const PackedFormat& format, const ColumnBlock& w, const Activations& x, size_t at,
                float sum) {
  const int8_t* values = x.values + at * kBlockInputs;
  const int32_t dot0 = dot_half(format, w, values, 0);
  const int32_t dot1 = dot_half(format, w, values, 1);
  if (!format.has_halves()) {
    sum = Step::madd(static_cast<float>(dot0 + dot1) * w.scale[0], x.scales[at], sum);
    return format.is_affine() ? Step::madd(w.minimum[0], x.scaled_sums[at], sum) : sum;
  }
  const float low = static_cast<float>(dot0) * w.scale[0];
  const float both = Step::madd(static_cast<float>(dot1), w.scale[1], low);
  sum = Step::madd(both, x.scales[at], sum);
  if (!format.is_affine()) return sum;
  sum = Step::madd(w.minimum[0], x.half_scaled_sums[2 * at], sum);
  return Step::madd(w.minimum[1], x.half_scaled_sums[2 * at + 1], sum);
}

float float_weight(const PackedMatrix& w, uint32_t output, uint32_t k) {
  const size_t bytes = block_bytes(w.type());
  const std::byte* at = w.panel(output / kPanelColumns) +
                        (size_t{k} * kPanelColumns + output % kPanelColumns) * bytes;
  if (w.type() == TensorType::kF16) return load_f16(at);
  if (w.type() == TensorType::kBf16) return load_bf16(at);
  float out = 0.0f;
  std::memcpy(&out, at, sizeof out);
  return out;
}

// One column of y for all rows; the sums live in y meanwhile.
template <class Step>
void column(const PackedMatrix& w, uint32_t output, const Activations& x, float* y,
            size_t y_stride) {
  for (uint32_t row = 0; row < x.rows; ++row) y[row * y_stride + output] = 0.0f;
  if (!w.format().is_quantized()) {
    for (uint32_t k = 0; k < x.inputs; ++k) {
      const float weight = float_weight(w, output, k);
      for (uint32_t row = 0; row < x.rows; ++row) {
        float& sum = y[row * y_stride + output];
        sum = Step::madd(x.x[row * x.x_stride + k], weight, sum);
      }
    }
    return;
  }
  for (uint32_t b = 0; b < w.blocks(); ++b) {
    const ColumnBlock block = w.column_block(output, b);
    for (uint32_t row = 0; row < x.rows; ++row) {
      float& sum = y[row * y_stride + output];
      sum = add_block<Step>(w.format(), block, x, size_t{row} * w.blocks() + b, sum);
    }
  }
}

}  // namespace

void matmul_reference(const PackedMatrix& w, const Activations& x, uint32_t first, uint32_t end,
                      float* y, size_t y_stride) {
  CHECK(x.inputs == w.shape().inputs);
  CHECK(end <= w.shape().outputs);
  for (uint32_t output = first; output < end; ++output) {
    if (w.level() == CpuLevel::kBaseline) {
      column<SeparateStep>(w, output, x, y, y_stride);
    } else {
      column<FusedStep>(w, output, x, y, y_stride);
    }
  }
}

}  // namespace spillway::kernels
