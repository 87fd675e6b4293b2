// Brings a GPU's kernels to it before they are needed. CUDA loads a kernel when it is first
// launched (unless CUDA_MODULE_LOADING says otherwise), and may wait there for all that runs. In a
// step that stands before a gate that would be for ever, for who launches is who opens it.
//
// Once, before the first step, with the device as the calling thread's own: within a launch().
// Returns the first error, a cudaError_t; 0: all are there.
#pragma once

#include <initializer_list>

namespace spillway::kernels::cuda {

// Those of a file each, which alone can name them.
int load_attention_kernels();
int load_matmul_kernels();
int load_page_kernels();
int load_rank_kernels();
int load_row_kernels();
int load_sampling_kernels();

inline int load_kernels() {
  for (int (*const load)() : {load_attention_kernels, load_matmul_kernels, load_page_kernels,
                              load_rank_kernels, load_row_kernels, load_sampling_kernels}) {
    if (const int error = load(); error != 0) return error;
  }
  return 0;
}

}  // namespace spillway::kernels::cuda
