// Rows of the embedding matrix, dequantised, for the tokens of a step.
//
// Sketch, H200: a token of a 4,096-wide Q8_0 model reads 4.3 KB in 256 pieces of 4 to 16 bytes (a
// panel holds 16 rows side by side, so 32-byte sectors are used in part: 35 KB) and writes 16 KB;
// 512 tokens move 26 MB, 5.5 us. Once a step.
#pragma once

#include "kernels/cuda/packed_codes.cuh"

namespace spillway::kernels::cuda {

// Four inputs a thread.
template <TensorType kType>
SPILLWAY_DEVICE void embed_word(const EmbeddingArgs& args, uint32_t word, float (&out)[4]) {
  const auto token = static_cast<uint32_t>(args.tokens[block_index().y]);
  const std::byte* panel = args.w.panels + token / kPanelColumns * args.w.panel_bytes;
  const uint32_t column = token % kPanelColumns;
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.is_quantized()) {
    const uint32_t blocks = args.w.inputs / kBlockInputs;
    const uint32_t block = word / 8;
    const uint32_t v = word % 8;
    const std::byte* codes =
        panel + kFormat.scale_section_bytes(blocks) + block * kFormat.code_bytes();
    const uint32_t bytes = code_bytes<kType>(GlobalBytes{codes}, column, v);
    const ColumnScales scales = column_scales<kType>(panel, column, block);
    for (uint32_t i = 0; i < 4; ++i) {
      const auto code = static_cast<int8_t>(bytes >> (8 * i));
      out[i] = scales.scale[v / 4] * static_cast<float>(code);
      if constexpr (kFormat.is_affine()) out[i] += scales.minimum[v / 4];
    }
  } else {
    constexpr size_t kBytes = kType == TensorType::kF32 ? 4 : 2;
    for (uint32_t i = 0; i < 4 && 4 * word + i < args.w.inputs; ++i) {
      const size_t k = 4 * word + i;
      const std::byte* at = panel + (k * kPanelColumns + column) * kBytes;
      if constexpr (kType == TensorType::kF32) out[i] = read_as<float>(at);
      if constexpr (kType == TensorType::kF16) out[i] = f16_to_float(read_as<uint16_t>(at));
      if constexpr (kType == TensorType::kBf16) out[i] = bf16_to_float(read_as<uint16_t>(at));
    }
  }
}

template <TensorType kType>
SPILLWAY_KERNEL void embedding_kernel(EmbeddingArgs args) {
  const uint32_t word = block_index().x * block_threads() + thread_index();
  if (4 * word >= args.w.inputs) return;
  float out[4] = {};
  embed_word<kType>(args, word, out);
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
