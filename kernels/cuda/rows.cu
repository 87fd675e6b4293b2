// The operators on rows and pages, for a GPU.
#include "kernels/cuda/every_row_kernel.cuh"
#include "kernels/cuda/gpu_launcher.cuh"
#include "kernels/cuda/loading.h"

namespace spillway::kernels::cuda {

int rms_norm(CUstream_st* stream, const RmsNormArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { rms_norm(launch, args); });
}
int rope(CUstream_st* stream, const RopeArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { rope(launch, args); });
}
int gated(CUstream_st* stream, const GatedArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { gated(launch, args); });
}
int add_bias(CUstream_st* stream, const AddBiasArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { add_bias(launch, args); });
}
int gather_rows(CUstream_st* stream, const GatherRowsArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { gather_rows(launch, args); });
}
int embedding(CUstream_st* stream, const EmbeddingArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { embedding(launch, args); });
}
int write_kv(CUstream_st* stream, const WriteKvArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { write_kv(launch, args); });
}
int soft_cap(CUstream_st* stream, const SoftCapArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { soft_cap(launch, args); });
}
int argmax(CUstream_st* stream, const ArgmaxArgs& args) {
  return enqueue_on(stream, [&](auto& launch) { argmax(launch, args); });
}

int load_row_kernels() {
  return load_all([](auto& launch) { every_row_kernel(launch); });
}

}  // namespace spillway::kernels::cuda
