#include "kernels/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "kernels/packed_format.h"
#include "kernels/share.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

// Per block of 32 inputs: scale, bias, scaled sum, and two of each of the halves' forms.
constexpr size_t kBlockSideBytes = 4 + 4 + 4 + 8 + 8;

void quantize_block(const float* x, const Activations& to, size_t block) {
  uint32_t largest_bits = 0;  // integer order is magnitude order, with NaN above infinity
  for (uint32_t i = 0; i < kBlockInputs; ++i) {
    largest_bits = std::max(largest_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  }
  const float largest = std::bit_cast<float>(largest_bits);
  const bool finite = largest_bits < 0x7f800000;
  const bool nothing = !finite || largest < kActivationZeroBelow;
  const float inverse = nothing ? 0.0f : 127.0f / largest;
  const float scale = nothing ? 0.0f : largest / 127.0f;
  int32_t sums[2] = {0, 0};
  for (uint32_t i = 0; i < kBlockInputs; ++i) {
    const int32_t value = nothing ? 0 : static_cast<int32_t>(std::lrintf(x[i] * inverse));
    to.values[block * kBlockInputs + i] = static_cast<int8_t>(value);
    sums[i / 16] += value;
  }
  to.scales[block] = finite ? scale : std::bit_cast<float>(0x7fc00000u);
  to.biases[block] = -128 * (sums[0] + sums[1]);
  to.scaled_sums[block] = to.scales[block] * static_cast<float>(sums[0] + sums[1]);
  for (uint32_t half = 0; half < 2; ++half) {
    to.half_biases[2 * block + half] = -128 * sums[half];
    to.half_scaled_sums[2 * block + half] = to.scales[block] * static_cast<float>(sums[half]);
  }
}

}  // namespace

ActivationBuffer::ActivationBuffer(CpuLevel level, size_t values_max)
    : level_(level), values_max_((values_max + kBlockInputs - 1) / kBlockInputs * kBlockInputs) {
  const size_t blocks = values_max_ / kBlockInputs;
  memory_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kVectorBytes, align_to_vector(values_max_ + blocks * kBlockSideBytes))));
  CHECK(memory_ != nullptr);
}

void ActivationBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

Activations ActivationBuffer::view(const float* x, size_t x_stride, uint32_t rows,
                                   uint32_t inputs) const {
  CHECK(x_stride >= inputs);
  Activations out{.level = level_, .rows = rows, .inputs = inputs, .x = x, .x_stride = x_stride};
  if (inputs % kBlockInputs != 0) return out;
  const size_t values = size_t{rows} * inputs;
  CHECK(values <= values_max_);
  const size_t blocks = values / kBlockInputs;
  std::byte* at = memory_.get();
  const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
  out.values = reinterpret_cast<int8_t*>(take(values));
  out.scales = reinterpret_cast<float*>(take(4 * blocks));
  out.biases = reinterpret_cast<int32_t*>(take(4 * blocks));
  out.scaled_sums = reinterpret_cast<float*>(take(4 * blocks));
  out.half_biases = reinterpret_cast<int32_t*>(take(8 * blocks));
  out.half_scaled_sums = reinterpret_cast<float*>(take(8 * blocks));
  return out;
}

void quantize_rows(const Activations& to, uint32_t first, uint32_t end) {
  CHECK(to.inputs % kBlockInputs == 0);
  CHECK(end <= to.rows);
  for (uint32_t row = first; row < end; ++row) {
    const float* x = to.x + row * to.x_stride;
    for (uint32_t block = 0; block < to.blocks(); ++block) {
      quantize_block(x + block * kBlockInputs, to, size_t{row} * to.blocks() + block);
    }
  }
}

void quantize(Team& team, const Activations& to) {
  const Share share = share_of(team, to.rows);
  quantize_rows(to, share.first, share.end);
}

}  // namespace spillway::kernels
