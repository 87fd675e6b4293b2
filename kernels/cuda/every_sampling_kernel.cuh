// Every kernel that draws tokens: the operators choose all of
// theirs, one after the other. What they are given besides is nothing, so `launch` must not run
// them (loading.h).
#pragma once

#include "kernels/cuda/sample.cuh"

namespace spillway::kernels::cuda {

template <class Launcher>
void every_sampling_kernel(Launcher& launch) {
  SampleArgs args;
  args.n = 1;
  sample(launch, args);
}

}  // namespace spillway::kernels::cuda
