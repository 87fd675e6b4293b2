// Four values of a PackedMatrix (packed_format.h), whatever its type: the bits of
// PackedMatrix::dequantize().
#pragma once

#include "kernels/cuda/packed_codes.cuh"

namespace spillway::kernels::cuda {

// Inputs 4 * word and up to three more of row `output`; what lies past the last input stays as it
// was.
template <TensorType kType>
SPILLWAY_DEVICE void dequantize_word(const DeviceMatrix& w, uint32_t output, uint32_t word,
                                     float (&out)[4]) {
  const std::byte* panel = w.panels + output / kPanelColumns * w.panel_bytes;
  const uint32_t column = output % kPanelColumns;
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.is_quantized()) {
    const uint32_t blocks = w.inputs / kBlockInputs;
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
    for (uint32_t i = 0; i < 4 && 4 * word + i < w.inputs; ++i) {
      const size_t k = 4 * word + i;
      const std::byte* at = panel + (k * kPanelColumns + column) * kBytes;
      if constexpr (kType == TensorType::kF32) out[i] = read_as<float>(at);
      if constexpr (kType == TensorType::kF16) out[i] = f16_to_float(read_as<uint16_t>(at));
      if constexpr (kType == TensorType::kBf16) out[i] = bf16_to_float(read_as<uint16_t>(at));
    }
  }
}

}  // namespace spillway::kernels::cuda
