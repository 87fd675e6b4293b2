// What the cases of gpu_bench share: a device, memory with random contents, and a way to measure.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/generated_model.h"
#include "bench/gpu/recorder.h"
#include "bench/gpu/stopwatch.h"
#include "kernels/cuda/cuda_device.h"

namespace spillway::bench {

// What is served, on pools that hold one long prompt and no two.
struct ServedSizes {
  uint32_t prefix_tokens = 8192;
  uint32_t suffix_tokens = 1024;  // behind it, computed each time
  uint32_t restores = 8;
  std::vector<uint32_t> streams = {1, 8, 64};
  uint32_t decoded_tokens = 128;  // of each
  uint64_t nvme_bytes = uint64_t{16} << 30;
};

// How large everything is: as on a GPU, or so small that a simulated one gets through it.
struct BenchSizes {
  uint32_t repeats = 20;
  uint32_t warm_ups = 3;
  size_t copy_bytes = size_t{1} << 30;        // on the device: more than its caches hold
  size_t transfer_bytes = size_t{256} << 20;  // between host and device
  std::vector<size_t> page_bytes = {size_t{368640}, size_t{2} << 20};
  uint32_t heads = 32, kv_heads = 8, head_dim = 128;
  std::vector<uint32_t> decode_tokens = {1024, 8192, 32768};
  uint64_t decode_tokens_together = 262144;  // over all sequences: 1 GiB of keys and values
  std::vector<uint32_t> prefill_rows = {512, 2048, 8192};
  uint32_t outputs = 14336, inputs = 4096;  // of a matrix
  size_t matrix_bytes = size_t{512} << 20;  // of all that take turns, where there are few rows
  std::vector<uint32_t> matmul_rows = {1, 8, 64, 512, 4096};
  GeneratedModel model;
  ServedSizes served;
};
BenchSizes tiny_sizes();

class BenchRun {
 public:
  // `folder` is for files: a model, the pages of the NVMe tier.
  BenchRun(kernels::CudaDevice& device, const BenchSizes& sizes, Recorder& recorder,
           std::string folder)
      : device_(device), sizes_(sizes), recorder_(recorder), folder_(std::move(folder)) {}

  const BenchSizes& sizes() const { return sizes_; }
  kernels::CudaDevice& device() { return device_; }
  const std::string& folder() const { return folder_; }

  // Of random bytes, so that wires toggle as they do at work.
  Result<kernels::DeviceMemory> random_memory(size_t bytes);
  // The same bytes on the device.
  template <class T>
  Result<kernels::DeviceMemory> upload(const std::vector<T>& values) {
    return upload_bytes(std::as_bytes(std::span(values)));
  }
  // An operator on the compute stream; what it returns ends the device where it is an error.
  template <class Args>
  void enqueue(const char* name, int (*enqueue_on)(CUstream_st*, const Args&), const Args& args) {
    device_.compute().launch([&](kernels::Team&) {
      device_.take_error_of(name, enqueue_on(device_.native(device_.compute()), args));
    });
  }
  // How long what `work` enqueues on the stream takes, again and again after warm-ups; recorded.
  Result<> measure(const Figure& figure, kernels::Stream& stream,
                   const std::function<void()>& work);
  Result<std::vector<double>> times(kernels::Stream& stream, const std::function<void()>& work);
  // For samples that are taken otherwise.
  Recorder& recorder() { return recorder_; }

 private:
  Result<kernels::DeviceMemory> upload_bytes(std::span<const std::byte> bytes);
  Result<> finish(kernels::Stream& stream);

  kernels::CudaDevice& device_;
  const BenchSizes& sizes_;
  Recorder& recorder_;
  const std::string folder_;
  Stopwatch stopwatch_;
};

// The cases, a file each. An error: what the GPU has no room for, or that it failed.
Result<> measure_copies(BenchRun& run);
Result<> measure_decode_attention(BenchRun& run);
Result<> measure_prefill_attention(BenchRun& run);
Result<> measure_products(BenchRun& run);
Result<> measure_library_products(BenchRun& run);
Result<> measure_serving(BenchRun& run);

}  // namespace spillway::bench
