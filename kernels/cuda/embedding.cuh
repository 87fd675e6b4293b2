// Rows of the embedding matrix, dequantised, for the tokens of a step.
//
// Sketch, H200: a token of a 4,096-wide Q8_0 model reads 4.3 KB in 256 pieces of 4 to 16 bytes (a
// panel holds 16 rows side by side, so 32-byte sectors are used in part: 35 KB) and writes 16 KB;
// 512 tokens move 26 MB, 5.5 us. Once a step.
#pragma once

#include "kernels/cuda/dequantize.cuh"

namespace spillway::kernels::cuda {

// Four inputs a thread.
template <TensorType kType>
SPILLWAY_KERNEL void embedding_kernel(EmbeddingArgs args) {
  const uint32_t word = block_index().x * block_threads() + thread_index();
  if (4 * word >= args.w.inputs) return;
  float out[4] = {};
  const auto token = static_cast<uint32_t>(args.tokens[block_index().y]);
  dequantize_word<kType>(args.w, token, word, out);
  float* y = args.y + block_index().y * args.y_stride + 4 * word;
  for (uint32_t i = 0; i < 4 && 4 * word + i < args.w.inputs; ++i) {
    y[i] = args.scale == 1 ? out[i] : out[i] * args.scale;
  }
}

template <class Launcher>
auto embedding(Launcher& launch, const EmbeddingArgs& args) {
  constexpr uint32_t kThreads = 128;
  const uint32_t words = (args.w.inputs + 3) / 4;
  const LaunchShape shape{.grid = {(words + kThreads - 1) / kThreads, args.rows, 1},
                          .threads = kThreads};
  switch (args.w.type) {
    case TensorType::kF32:
      return launch(embedding_kernel<TensorType::kF32>, shape, args);
    case TensorType::kF16:
      return launch(embedding_kernel<TensorType::kF16>, shape, args);
    case TensorType::kBf16:
      return launch(embedding_kernel<TensorType::kBf16>, shape, args);
    default:
      break;
  }
  return with_quantised_type(args.w.type, [&](auto tag) {
    return launch(embedding_kernel<decltype(tag)::value>, shape, args);
  });
}

}  // namespace spillway::kernels::cuda
