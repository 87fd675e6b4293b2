// CUDA's runtime API and the driver's types, as the host code of the CUDA device sees them: the
// toolkit's own headers, or those of the simulated runtime that the tests run it on. The build
// names the latter, since it is no part of the product. Included by sources, and by headers that
// only they include.
#pragma once

#if defined(SPILLWAY_CUDA_SIMULATED_RUNTIME)
#include SPILLWAY_CUDA_SIMULATED_RUNTIME
#else
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif
