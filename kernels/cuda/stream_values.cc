#include "kernels/cuda/stream_values.h"

namespace spillway::kernels::cuda {
namespace {

StreamValues::Call entry_point(const char* name) {
  constexpr unsigned int kSince = 11070;  // of CUDA 11.7: every GPU has them, with no setting
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &status);
  if (error != cudaSuccess || status != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<StreamValues::Call>(found);
}

// A driver may have a call and refuse it for this GPU.
bool takes(Health& health, const char* name, StreamValues::Call call, cudaStream_t stream,
           Word word) {
  if (call == nullptr) return false;
  const CUresult result = call(stream, word.device, 1, CU_STREAM_WAIT_VALUE_GEQ);
  return result != CUDA_ERROR_NOT_SUPPORTED && health.ok(result, name);
}

}  // namespace

StreamValues find_stream_values(Health& health, Word word) {
  static_assert(CU_STREAM_WAIT_VALUE_GEQ == 0 && CU_STREAM_WRITE_VALUE_DEFAULT == 0);
  StreamValues values{entry_point("cuStreamWriteValue32"), entry_point("cuStreamWaitValue32")};
  cudaStream_t stream = nullptr;
  if (!health.ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags")) {
    return {};
  }
  if (!takes(health, "cuStreamWriteValue32", values.write, stream, word)) values = {};
  // The word that it waits for has been asked for on this stream.
  if (!takes(health, "cuStreamWaitValue32", values.wait, stream, word)) values.wait = nullptr;
  health.ok(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  health.ok(cudaStreamDestroy(stream), "cudaStreamDestroy");
  if (word.host->load(std::memory_order_acquire) != 1) values = {};
  return values;
}

}  // namespace spillway::kernels::cuda
