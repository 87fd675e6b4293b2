#include "kernels/cuda/cuda_device.h"

#include <array>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/cuda_gate.h"
#include "kernels/cuda/cuda_graph.h"
#include "kernels/cuda/cuda_parts.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/gpus.h"
#include "kernels/cuda/memory.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

using namespace cuda;  // the parts of this folder, whose only face this file is

class Gpu final : public CudaDevice {
 public:
  Gpu(std::shared_ptr<CudaParts> parts, std::string description)
      : parts_(std::move(parts)), description_(std::move(description)) {}
  ~Gpu() override;

  Result<> make_streams();

  Result<DeviceMemory> allocate(size_t bytes) override {
    return allocate_device(parts_->health, bytes);
  }
  Result<DeviceMemory> allocate_host(size_t bytes) override {
    return allocate_pinned(parts_->health, bytes);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(parts_); }
  std::unique_ptr<kernels::Gate> make_gate() override {
    CHECK(has_gates());
    return std::make_unique<CudaGate>(parts_);
  }
  Stream& compute() override { return *streams_[0]; }
  Stream& copy_in() override { return *streams_[1]; }
  Stream& copy_out() override { return *streams_[2]; }
  std::string description() const override { return description_; }
  bool host_reaches_memory() const override { return false; }
  bool has_gates() const override { return parts_->values.wait != nullptr; }
  const Error* failure() const override { return parts_->health->failure(); }

  CUstream_st* native(Stream& stream) const override {
    return static_cast<CudaStream&>(stream).native();
  }
  void take_error_of(const char* operator_name, int error) override {
    parts_->health->ok(static_cast<cudaError_t>(error), operator_name);
  }
  int index() const override { return parts_->health->device(); }
  Health& health() override { return *parts_->health; }
  GraphMaker& graphs() override { return *graphs_; }

 private:
  const std::shared_ptr<CudaParts> parts_;
  const std::string description_;
  std::array<std::unique_ptr<CudaStream>, kStreams> streams_;
  std::unique_ptr<CudaGraphs> graphs_;  // of the first of them
};

Result<> Gpu::make_streams() {
  Health& health = *parts_->health;
  for (uint32_t i = 0; i < kStreams; ++i) {
    cudaStream_t native = nullptr;
    if (!health.ok(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking),
                   "cudaStreamCreateWithFlags")) {
      return *health.failure();
    }
    streams_[i] = std::make_unique<CudaStream>(parts_, native, i);
  }
  graphs_ = std::make_unique<CudaGraphs>(parts_->health, streams_[0]->native());
  return Result<>();
}

// Of a device that is lost the driver keeps its memory until it is told that nobody wants it.
Gpu::~Gpu() {
  for (auto& stream : streams_) stream.reset();
  if (!parts_->health->lost()) return;
  cudaSetDevice(parts_->health->device());  // the thread's own may be another, which is well
  cudaDeviceReset();
}

// "cuda NVIDIA H200, sm_90, 139 GiB"
Result<std::string> describe(int index) {
  const auto gpus = find_gpus();
  if (!gpus) return gpus.error();
  if (index < 0 || static_cast<size_t>(index) >= gpus->size()) {
    return Error{ErrorCode::kUnavailable, "no GPU to use: there is none with index " +
                                              std::to_string(index) + " among " +
                                              std::to_string(gpus->size())};
  }
  return "cuda " + (*gpus)[static_cast<size_t>(index)].description();
}

Result<std::shared_ptr<CudaParts>> make_parts(int index) {
  auto parts = std::make_shared<CudaParts>(index);
  if (!parts->health->enter()) return *parts->health->failure();
  if (const auto allocated = parts->words.allocate(parts->health); !allocated) {
    return allocated.error();
  }
  const Word word = parts->words.take();
  parts->values = find_stream_values(*parts->health, word);
  if (parts->health->ended()) return *parts->health->failure();
  parts->words.give_back(word);
  parts->gates.begin();
  return parts;
}

}  // namespace

Result<std::unique_ptr<CudaDevice>> make_cuda_device(const CudaDeviceOptions& options) {
  auto description = describe(options.index);
  if (!description) return description.error();
  auto parts = make_parts(options.index);
  if (!parts) return parts.error();
  auto gpu = std::make_unique<Gpu>(std::move(*parts), std::move(*description));
  if (const auto made = gpu->make_streams(); !made) return made.error();
  return std::unique_ptr<CudaDevice>(std::move(gpu));
}

}  // namespace spillway::kernels
