// What a library's products read: weights as plain rows of 16-bit floats, and activations likewise.
//
// Eight lanes have as many columns of a panel, and four groups of them consecutive words of four
// inputs: a warp reads whole sectors of 32 bytes, and writes whole ones.
//
// Sketch, H200: 4,096 x 4,096 of Q4_0 are 9.4 MB to read and 34 MB to write, which fit into L2: 9
// us at 4.8 TB/s, as long as a product of them by 80 rows takes at 300 TFLOP/s. So many rows are
// what pays for it. (Not measured.)
#pragma once

#include "kernels/cuda/dequantize.cuh"

namespace spillway::kernels::cuda {

SPILLWAY_DEVICE uint16_t half_of(float value, HalfType type) {
  if (type == HalfType::kBf16) return float_to_bf16(value);
  constexpr float kLargest = 65504.0f;
  if (value > kLargest) value = kLargest;
  if (value < -kLargest) value = -kLargest;
  return float_to_f16(value);
}

SPILLWAY_DEVICE void store_halves(uint16_t* to, const float (&values)[4], HalfType type) {
  uint64_t halves = 0;
  for (uint32_t i = 0; i < 4; ++i) halves |= uint64_t{half_of(values[i], type)} << (16 * i);
  *reinterpret_cast<uint64_t*>(to) = halves;
}

template <TensorType kType>
SPILLWAY_KERNEL void unpack_kernel(UnpackArgs args) {
  const uint32_t lane = thread_index() % 32;
  const uint32_t unit = (block_index().x * block_threads() + thread_index()) / 32;
  const uint32_t word = unit / 2 * 4 + lane / 8;
  const uint32_t row = block_index().y * kPanelColumns + unit % 2 * 8 + lane % 8;
  if (4 * word >= args.w.inputs || row >= args.outputs) return;
  float values[4] = {};
  dequantize_word<kType>(args.w, args.first_output + row, word, values);
  store_halves(args.to + size_t{row} * args.w.inputs + 4 * word, values, args.type);
}

// REQUIRES: not F32, of which 16 bits would be half.
template <class Launcher>
auto unpack(Launcher& launch, const UnpackArgs& args) {
  constexpr uint32_t kThreads = 256;
  const uint32_t panels = (args.outputs + kPanelColumns - 1) / kPanelColumns;
  const uint32_t threads = args.w.inputs / 16 * 64;  // two warps for 16 inputs of a panel
  const LaunchShape shape{.grid = {(threads + kThreads - 1) / kThreads, panels, 1},
                          .threads = kThreads};
  switch (args.w.type) {
    case TensorType::kF16:
      return launch(unpack_kernel<TensorType::kF16>, shape, args);
    case TensorType::kBf16:
      return launch(unpack_kernel<TensorType::kBf16>, shape, args);
    default:
      break;
  }
  return with_quantised_type(args.w.type, [&](auto tag) {
    return launch(unpack_kernel<decltype(tag)::value>, shape, args);
  });
}

// An element a thread.
SPILLWAY_KERNEL void narrow_kernel(NarrowArgs args) {
  const uint32_t i = block_index().x * block_threads() + thread_index();
  if (i >= args.n) return;
  const size_t row = block_index().y;
  args.to[row * args.n + i] = half_of(args.x[row * args.x_stride + i], args.type);
}

template <class Launcher>
auto narrow(Launcher& launch, const NarrowArgs& args) {
  constexpr uint32_t kThreads = 256;
  const LaunchShape shape{.grid = {(args.n + kThreads - 1) / kThreads, args.rows, 1},
                          .threads = kThreads};
  return launch(narrow_kernel, shape, args);
}

}  // namespace spillway::kernels::cuda
