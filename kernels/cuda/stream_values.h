// The driver's calls by which a stream writes a word of memory, and waits for one. They come from
// the driver at run time: a program linked with them could not start where there is none.
#pragma once

#include "kernels/cuda/health.h"
#include "kernels/cuda/pinned_words.h"
#include "kernels/cuda/runtime_api.h"

namespace spillway::kernels::cuda {

struct StreamValues {
  using Call = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

  Call write = nullptr;  // null: this driver or GPU cannot
  Call wait = nullptr;   // the same; never without `write`
};

// Those that work, each tried on `word`, which is zero. Waits for the GPU. Errors end the device.
StreamValues find_stream_values(Health& health, Word word);

}  // namespace spillway::kernels::cuda
