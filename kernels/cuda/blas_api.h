// cuBLASLt's names, as the sources that call it see them: the toolkit's own header, or that of the
// simulated library, as in runtime_api.h. Included by sources, and by headers that only they
// include.
#pragma once

#include "kernels/cuda/runtime_api.h"

#if defined(SPILLWAY_CUDA_SIMULATED_BLAS)
#include SPILLWAY_CUDA_SIMULATED_BLAS
#else
#include <cublasLt.h>
#endif
