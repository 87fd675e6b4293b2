// The words that kernels are written in, on either side: nvcc's (gpu.cuh) or those of the emulator
// that the tests run kernels on. The build names the emulator's header, since it is no part of the
// product.
#pragma once

#include "kernels/cuda/launch_shape.h"

#if defined(__CUDACC__)
#include "kernels/cuda/gpu.cuh"
#elif defined(SPILLWAY_CUDA_EMULATOR)
#include SPILLWAY_CUDA_EMULATOR
#else
#error "compile kernels with nvcc, or with an emulator: SPILLWAY_CUDA_EMULATOR"
#endif
