// y = x W^T for few rows and F32, F16 or BF16 weights: one chain of f32 FMAs an output, inputs
// ascending, for every number of rows, as the CPU has it (matmul.h).
//
// A block of threads computes 32 outputs (two panels) for 8 rows, a chain a thread. Chunks of 8 KB
// a panel come by asynchronous copies, the next while the chains run over this one.
//
// Sketch, H200, 4,096 x 4,096 in BF16: 34 MB of weights, 7 us at 4.8 TB/s. 128 blocks have 16 KB
// under way each, what an SM needs to hide its latency; but a chain of 4,096 FMAs behind reads of
// shared memory takes about 10 us, whatever the number of rows up to 8: bound by the order of the
// sum, at about 70% of the bandwidth. More outputs than 4,224 are several blocks an SM, which hides
// it.
#pragma once

#include "kernels/cuda/packed_codes.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kFloatPanels = 2;
inline constexpr uint32_t kFloatColumns = kFloatPanels * kPanelColumns;
inline constexpr uint32_t kFloatRows = 8;
inline constexpr uint32_t kFloatThreads = kFloatColumns * kFloatRows;
inline constexpr uint32_t kPanelChunkBytes = 8192;
inline constexpr uint32_t kChunkBytes = kFloatPanels * kPanelChunkBytes;
inline constexpr uint32_t kCopyBytes = 16;

// How a weight lies in shared memory, and what it is worth.
template <TensorType kType>
struct FloatWeight {
  using Stored = uint16_t;
  static SPILLWAY_DEVICE float widen(Stored bits) {
    return kType == TensorType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }
};
template <>
struct FloatWeight<TensorType::kF32> {
  using Stored = float;
  static SPILLWAY_DEVICE float widen(Stored value) { return value; }
};

// Begins to copy chunk `chunk` of the block's panels; zeros for what the matrix does not have.
template <class T>
SPILLWAY_DEVICE void fetch_chunk(const MatmulFloatsArgs& args, uint32_t chunk,
                                 const Shared<T>& buffer) {
  const size_t panel_end = size_t{args.w.inputs} * kPanelColumns * sizeof(T);
  const uint32_t panels = (args.w.outputs + kPanelColumns - 1) / kPanelColumns;
  for (uint32_t i = thread_index(); i < kChunkBytes / kCopyBytes; i += kFloatThreads) {
    const uint32_t panel = block_index().x * kFloatPanels + i / (kPanelChunkBytes / kCopyBytes);
    const size_t at =
        size_t{chunk} * kPanelChunkBytes + i % (kPanelChunkBytes / kCopyBytes) * kCopyBytes;
    const bool valid = panel < panels && at < panel_end;
    const std::byte* from = args.w.panels + (valid ? panel * args.w.panel_bytes + at : 0);
    copy_async_16(buffer, i * kCopyBytes / sizeof(T), from, valid);
  }
  commit_copies();
}

template <TensorType kType>
SPILLWAY_KERNEL void matmul_floats_kernel(MatmulFloatsArgs args) {
  using Weight = FloatWeight<kType>;
  using Stored = typename Weight::Stored;
  constexpr uint32_t kElements = kChunkBytes / sizeof(Stored);
  constexpr uint32_t kPanelElements = kPanelChunkBytes / sizeof(Stored);
  constexpr uint32_t kInputs = kPanelElements / kPanelColumns;  // of a chunk
  SPILLWAY_SHARED(Stored, buffers, 2 * kElements);
  const uint32_t column = thread_index() % kFloatColumns;
  const uint32_t output = block_index().x * kFloatColumns + column;
  const uint32_t row = block_index().y * kFloatRows + thread_index() / kFloatColumns;
  const bool has_chain = output < args.w.outputs && row < args.rows;
  const float* x = args.x + (has_chain ? row * args.x_stride : 0);
  const uint32_t chunks = (args.w.inputs + kInputs - 1) / kInputs;
  fetch_chunk(args, 0, buffers);
  float sum = 0;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    // Past the last there is an empty group to wait for, so that one is left pending always.
    if (chunk + 1 < chunks) {
      fetch_chunk(args, chunk + 1, buffers.part((chunk + 1) % 2 * kElements));
    } else {
      commit_copies();
    }
    wait_copies<1>();
    sync_threads();
    const uint32_t first = chunk * kInputs;
    const uint32_t left = args.w.inputs - first;
    const uint32_t count = has_chain ? (left < kInputs ? left : kInputs) : 0;
    const Shared<Stored> weights = buffers.part(
        chunk % 2 * kElements + column / kPanelColumns * kPanelElements + column % kPanelColumns);
    for (uint32_t k = 0; k < count; ++k) {
      sum = fused(x[first + k], Weight::widen(weights[k * kPanelColumns]), sum);
    }
    sync_threads();  // the buffer is filled again two chunks on
  }
  if (has_chain) args.y[row * args.y_stride + output] = sum;
}

// Any number of rows; meant for few.
template <class Launcher>
auto matmul_floats(Launcher& launch, const MatmulFloatsArgs& args) {
  const LaunchShape shape{.grid = {(args.w.outputs + kFloatColumns - 1) / kFloatColumns,
                                   (args.rows + kFloatRows - 1) / kFloatRows, 1},
                          .threads = kFloatThreads};
  if (args.w.type == TensorType::kF32) {
    return launch(matmul_floats_kernel<TensorType::kF32>, shape, args);
  }
  if (args.w.type == TensorType::kF16) {
    return launch(matmul_floats_kernel<TensorType::kF16>, shape, args);
  }
  CHECK(args.w.type == TensorType::kBf16);
  return launch(matmul_floats_kernel<TensorType::kBf16>, shape, args);
}

}  // namespace spillway::kernels::cuda
