// y(M, N) = x(M, K) W^T for every weight type, batch-invariant: an element of y depends on its row
// of x and its row of W alone, never on M, on the other rows, or on the number of workers.
//
// Quantised weights: exact int32 dot products of int8 activations with codes inside a block of 32
// inputs (16 where the format scales 16), then per block, ascending, into one f32 accumulator:
//   one scale per 32   acc = fma(f32(dot) * scale, x_scale, acc)
//   one scale per 16   acc = fma(fma(f32(dot1), scale1, f32(dot0) * scale0), x_scale, acc)
//   then a minimum     acc = fma(minimum, x_scale * sum(x), acc)          (per 16: both in turn)
// dot takes codes minus their zero; K-quants' scale is f32(block's f16) * sub-block's integer.
// Float weights: acc = fma(x, w, acc), inputs ascending. All levels with FMA give the same bits;
// the baseline multiplies, rounds and adds, so its bits differ and its KV pages are not mixed in.
#pragma once

#include "kernels/activations.h"
#include "kernels/device.h"
#include "kernels/matrix.h"

namespace spillway::kernels {

// Computes this worker's share of the columns of `y` (rows, outputs; `y_stride` floats from row to
// row). Every worker of a launch calls it with the same arguments; no barrier inside: one before it
// unless this worker itself wrote all of `x` (see quantize()), one after it before y is read.
// Writes no float outside the outputs of each row.
// REQUIRES: x.inputs == w.shape().inputs; y_stride >= w.shape().outputs.
void matmul(Team& team, const PackedMatrix& w, const Activations& x, float* y, size_t y_stride);

// The plain twin for outputs [first, end): one obvious loop nest per family, in the arithmetic of
// w.level().
void matmul_reference(const PackedMatrix& w, const Activations& x, uint32_t first, uint32_t end,
                      float* y, size_t y_stride);

}  // namespace spillway::kernels
