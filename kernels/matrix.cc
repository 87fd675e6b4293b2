#include "kernels/matrix.h"

#include <cstring>

#include "kernels/file_block.h"
#include "kernels/half.h"
#include "kernels/iq4_nl.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

size_t panel_bytes_of(const PackedFormat& format, MatrixShape shape) {
  if (!format.is_quantized()) {
    return align_to_vector(size_t{shape.inputs} * kPanelColumns * block_bytes(format.type));
  }
  const size_t blocks = shape.inputs / kBlockInputs;
  return format.scale_section_bytes(blocks) + blocks * format.code_bytes();
}

// Four codes of a block side by side, as they lie in a vector; `vector` is 0..7.
uint32_t word_of(const uint8_t* codes, uint32_t vector) {
  uint32_t out = 0;
  std::memcpy(&out, codes + 4 * vector, sizeof out);
  return out;
}

// ORs the bits [shift, shift + bits) of a column's codes into a plane whose vectors' bytes each
// hold `bits` of several vectors. The plane has been zeroed. Returns what follows it.
std::byte* pack_plane(std::byte* plane, uint32_t column, const uint8_t* codes, uint32_t bits,
                      uint32_t shift) {
  const uint32_t vectors = bits;  // 8 vectors of 8 bits become `bits` vectors of 8
  const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (uint32_t v = 0; v < 8; ++v) {
    std::byte* to = plane + v % vectors * kVectorBytes + 4 * column;
    uint32_t word = 0;
    std::memcpy(&word, to, sizeof word);
    word |= (word_of(codes, v) >> shift & mask) << (v / vectors * bits);
    std::memcpy(to, &word, sizeof word);
  }
  return plane + vectors * kVectorBytes;
}

const std::byte* unpack_plane(const std::byte* plane, uint32_t column, uint32_t bits,
                              uint32_t shift, uint8_t* codes) {
  const uint32_t vectors = bits;
  const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (uint32_t v = 0; v < 8; ++v) {
    const std::byte* from = plane + v % vectors * kVectorBytes + 4 * column;
    uint32_t word = 0;
    std::memcpy(&word, from, sizeof word);
    const uint32_t sum = word_of(codes, v) | (word >> (v / vectors * bits) & mask) << shift;
    std::memcpy(codes + 4 * v, &sum, sizeof sum);
  }
  return plane + vectors * kVectorBytes;
}

// The first and the second plane of a code, in bits.
uint32_t low_plane_bits(uint32_t code_bits) {
  if (code_bits == 8) return 8;
  return code_bits >= 4 ? 4 : 2;
}

void pack_codes(std::byte* to, uint32_t column, const uint8_t* codes, uint32_t code_bits) {
  const uint32_t low = low_plane_bits(code_bits);
  to = pack_plane(to, column, codes, low, 0);
  if (code_bits > low) pack_plane(to, column, codes, code_bits - low, low);
}

void put_u16(std::byte* section, uint32_t column, uint16_t value) {
  std::memcpy(section + 2 * column, &value, sizeof value);
}

// The scales of `column` for block number `block`, sub-block `sub` of its file block.
void pack_scales(const PackedFormat& format, std::byte* panel, uint32_t column, uint32_t block,
                 const FileBlock& from, uint32_t sub) {
  std::byte* to = panel + format.scale_offset(block);
  std::byte* head = panel + format.head_offset(block);
  switch (format.scales) {
    case ScaleKind::kNone:
      return;
    case ScaleKind::kPlain:
      return put_u16(to, column, from.scale);
    case ScaleKind::kAffine:
      put_u16(to, column, from.scale);
      return put_u16(to + 32, column, from.minimum);
    case ScaleKind::kKAffine:
      put_u16(head, column, from.scale);
      put_u16(head + 32, column, from.minimum);
      to[column] = std::byte{from.sub_scales[sub]};
      to[16 + column] = std::byte{from.sub_minimums[sub]};
      return;
    case ScaleKind::kKHalves:
      put_u16(head, column, from.scale);
      to[column] = std::byte{from.sub_scales[2 * sub]};
      to[16 + column] = std::byte{from.sub_scales[2 * sub + 1]};
      return;
    case ScaleKind::kKHalvesAffine:
      put_u16(head, column, from.scale);
      put_u16(head + 32, column, from.minimum);
      for (uint32_t half = 0; half < 2; ++half) {
        const int both = from.sub_scales[2 * sub + half] | from.sub_minimums[2 * sub + half] << 4;
        to[16 * half + column] = static_cast<std::byte>(both);
      }
      return;
  }
}

void pack_quantized_row(const PackedFormat& format, std::byte* panel, uint32_t column,
                        const std::byte* row, uint32_t blocks) {
  const uint32_t blocks_per_file_block = block_elements(format.type) / kBlockInputs;
  std::byte* codes = panel + format.scale_section_bytes(blocks);
  FileBlock from;
  for (uint32_t block = 0; block < blocks; block += blocks_per_file_block) {
    read_file_block(format.type, row, from);
    row += block_bytes(format.type);
    for (uint32_t sub = 0; sub < blocks_per_file_block; ++sub) {
      pack_scales(format, panel, column, block + sub, from, sub);
      pack_codes(codes + (block + sub) * format.code_bytes(), column,
                 from.codes + sub * kBlockInputs, format.code_bits);
    }
  }
}

void pack_float_row(TensorType type, std::byte* panel, uint32_t column, const std::byte* row,
                    uint32_t inputs) {
  const size_t bytes = block_bytes(type);
  for (uint32_t k = 0; k < inputs; ++k) {
    std::memcpy(panel + (size_t{k} * kPanelColumns + column) * bytes, row + k * bytes, bytes);
  }
}

float get_f16(const std::byte* section, uint32_t column) { return load_f16(section + 2 * column); }

}  // namespace

PackedMatrix PackedMatrix::pack(CpuLevel level, TensorType type, const std::byte* rows,
                                MatrixShape shape, WeightArena* arena) {
  const PackedFormat& format = packed_format(type);
  CHECK(shape.inputs > 0);
  CHECK(cpu_features().has(level));
  const size_t bytes_per_row = row_bytes(type, shape.inputs);  // CHECKs whole blocks
  PackedMatrix out;
  out.format_ = &format;
  out.level_ = level;
  out.shape_ = shape;
  out.panel_bytes_ = panel_bytes_of(format, shape);
  if (shape.outputs == 0) return out;
  out.memory_ = arena == nullptr ? allocate_weights(out.bytes()) : arena->take(out.bytes());
  for (uint32_t output = 0; output < shape.outputs; ++output) {
    std::byte* panel = out.memory_.get() + output / kPanelColumns * out.panel_bytes_;
    const uint32_t column = output % kPanelColumns;
    const std::byte* row = rows + output * bytes_per_row;
    if (format.is_quantized()) {
      pack_quantized_row(format, panel, column, row, out.blocks());
    } else {
      pack_float_row(type, panel, column, row, shape.inputs);
    }
  }
  return out;
}

ColumnBlock PackedMatrix::column_block(uint32_t output, uint32_t block) const {
  CHECK(output < shape_.outputs);
  CHECK(block < blocks());
  const std::byte* from = panel(output / kPanelColumns);
  const uint32_t column = output % kPanelColumns;
  const std::byte* scales = from + format_->scale_offset(block);
  const std::byte* head = from + format_->head_offset(block);
  ColumnBlock out{};
  const uint32_t low = low_plane_bits(format_->code_bits);
  const std::byte* plane =
      from + format_->scale_section_bytes(blocks()) + block * format_->code_bytes();
  plane = unpack_plane(plane, column, low, 0, out.codes);
  if (format_->code_bits > low) {
    unpack_plane(plane, column, format_->code_bits - low, low, out.codes);
  }
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t first = std::to_integer<uint32_t>(scales[column]);
    const uint32_t byte = std::to_integer<uint32_t>(scales[16 * half + column]);
    switch (format_->scales) {
      case ScaleKind::kNone:
        check_failed("a quantised type", __FILE__, __LINE__);
      case ScaleKind::kPlain:
        out.scale[half] = get_f16(scales, column);
        break;
      case ScaleKind::kAffine:
        out.scale[half] = get_f16(scales, column);
        out.minimum[half] = get_f16(scales + 32, column);
        break;
      case ScaleKind::kKAffine: {
        const uint32_t minimum = std::to_integer<uint32_t>(scales[16 + column]);
        out.scale[half] = get_f16(head, column) * static_cast<float>(first);
        out.minimum[half] = -(get_f16(head + 32, column) * static_cast<float>(minimum));
        break;
      }
      case ScaleKind::kKHalves:
        out.scale[half] = get_f16(head, column) * static_cast<float>(static_cast<int8_t>(byte));
        break;
      case ScaleKind::kKHalvesAffine:
        out.scale[half] = get_f16(head, column) * static_cast<float>(byte & 15);
        out.minimum[half] = -(get_f16(head + 32, column) * static_cast<float>(byte >> 4));
        break;
    }
  }
  return out;
}

void PackedMatrix::dequantize(uint32_t output, float* to) const {
  CHECK(output < shape_.outputs);
  if (!format_->is_quantized()) {
    const size_t bytes = block_bytes(type());
    const std::byte* from = panel(output / kPanelColumns) + output % kPanelColumns * bytes;
    for (uint32_t k = 0; k < shape_.inputs; ++k, from += kPanelColumns * bytes) {
      if (type() == TensorType::kF32) std::memcpy(to + k, from, sizeof(float));
      if (type() == TensorType::kF16) to[k] = load_f16(from);
      if (type() == TensorType::kBf16) to[k] = load_bf16(from);
    }
    return;
  }
  for (uint32_t block = 0; block < blocks(); ++block, to += kBlockInputs) {
    const ColumnBlock column = column_block(output, block);
    for (uint32_t i = 0; i < kBlockInputs; ++i) {
      const int32_t code = format_->is_table ? kIq4NlValues[column.codes[i]]
                                             : column.codes[i] - int32_t{format_->zero};
      to[i] = column.scale[i / 16] * static_cast<float>(code);
      if (format_->is_affine()) to[i] += column.minimum[i / 16];
    }
  }
}

}  // namespace spillway::kernels
