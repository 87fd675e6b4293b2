// A weight matrix, repacked at load into the order in which the kernels walk it.
//
// Resident size: the file's for Q8_0, Q6_K, Q5_*, Q4_*, IQ4_NL, Q2_K and floats; 2 to 4% more for
// Q4_K, Q5_K and Q3_K, whose 6-bit sub-block scales become bytes. Columns are padded to 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu_level.h"
#include "kernels/packed_format.h"
#include "kernels/tensor_type.h"
#include "kernels/weight_arena.h"

namespace spillway::kernels {

struct MatrixShape {
  uint32_t outputs = 0;  // rows in the file, columns of y = x W^T
  uint32_t inputs = 0;   // elements of a row in the file
};

// What one column holds of 32 consecutive inputs: value i is
// scale[i / 16] * (code[i] - zero) - minimum[i / 16], or by kIq4NlValues for a table.
struct ColumnBlock {
  uint8_t codes[kBlockInputs];
  float scale[2];    // per 16 inputs; equal where the format has one per 32
  float minimum[2];  // what is added, so negative for K-quants: value = scale * code + minimum
};

// Immutable after pack(); any number of threads may read it. Copies share the memory.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Copies `rows` (shape.outputs rows of row_bytes(type, shape.inputs) bytes, any alignment).
  // `level` chooses the kernels that matmul() will use. REQUIRES: shape.inputs > 0, a multiple of
  // block_elements(type); this machine has `level`. The copy lies in `arena` (which need not
  // outlive the matrix), or in memory of its own.
  static PackedMatrix pack(CpuLevel level, TensorType type, const std::byte* rows,
                           MatrixShape shape, WeightArena* arena = nullptr);

  MatrixShape shape() const { return shape_; }
  TensorType type() const { return format_->type; }
  CpuLevel level() const { return level_; }
  const PackedFormat& format() const { return *format_; }
  size_t bytes() const { return panel_bytes_ * panels(); }  // resident

  uint32_t blocks() const { return shape_.inputs / kBlockInputs; }
  uint32_t panels() const { return (shape_.outputs + kPanelColumns - 1) / kPanelColumns; }
  const std::byte* panel(uint32_t index) const { return memory_.get() + index * panel_bytes_; }

  // Row `output` of the file in f32, the bits of dequantize_row(): an embedding lookup that needs
  // no second copy of a tied matrix. REQUIRES: output < shape().outputs; room for shape().inputs.
  void dequantize(uint32_t output, float* to) const;

  // REQUIRES: a quantised type.
  ColumnBlock column_block(uint32_t output, uint32_t block) const;

 private:
  const PackedFormat* format_ = nullptr;
  CpuLevel level_ = CpuLevel::kBaseline;
  MatrixShape shape_;
  size_t panel_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace spillway::kernels
