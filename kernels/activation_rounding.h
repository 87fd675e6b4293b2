// Where rounding a block of activations to int8 (activations.h) takes it for zero. Plain types
// only: this header is included by CUDA sources.
#pragma once

namespace spillway::kernels {

inline constexpr float kActivationZeroBelow = 1e-30f;  // the largest magnitude of a block

}  // namespace spillway::kernels
