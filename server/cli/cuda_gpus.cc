#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/library_products.h"
#include "model/config.h"
#include "model/gpu_transformer.h"
#include "model/largest_step.h"
#include "server/cli/gpu_budget.h"
#include "server/cli/gpus.h"
#include "server/cli/kv_type.h"
#include "server/cli/sizes.h"

namespace spillway::server {
namespace {

// The fingerprint's probe is a step of its own (model/fingerprint.h), whatever steps are to be.
constexpr uint32_t kRowsMin = 32;

Error with_advice(Error error) {
  if (error.code != ErrorCode::kResourceExhausted) return error;
  error.message +=
      "; take a smaller model, another GPU (--device cuda:1), or the processor (--device cpu)";
  return error;
}

using Products = std::shared_ptr<kernels::cuda::LibraryProducts>;

// Null: our own kernels compute all.
Result<Products> make_products(const ModelOptions& options, kernels::CudaDevice& device) {
  if (options.batch_invariant) return Products();
  Result<Products> made = Products();
  device.compute().launch([&](kernels::Team&) {
    auto products = kernels::cuda::make_library_products(device.native(device.compute()));
    made = products ? Result<Products>(*std::move(products)) : products.error();
  });
  if (made) return made;
  return Error{made.error().code, "--no-batch-invariant: " + made.error().message};
}

Result<model::GpuTransformerOptions> transformer_options(const model::GgufFile& file,
                                                         const ModelOptions& options,
                                                         kernels::CudaDevice& device) {
  const auto kv_type = kv_type_of(options.kv_type);
  if (!kv_type) return kv_type.error();
  const auto config = model::read_model_config(file);
  if (!config) return config.error();
  const auto products = make_products(options, device);
  if (!products) return products.error();
  const uint32_t threads =
      options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  return model::GpuTransformerOptions{
      .stream = device.native(device.compute()),
      .take_error = [&device](const char* name, int error) { device.take_error_of(name, error); },
      .kv_type = *kv_type,
      .page_tokens = options.page_tokens,
      .context_tokens_max = std::max(options.context_tokens_max, config->context_tokens_max),
      .batch_tokens_max = options.step_tokens_max,
      .batch_sequences_max = options.sequences_max,
      .load_threads = threads,
      .graphs = &device.graphs(),
      .products = *products};
}

// What is left once a step has what it takes.
Result<uint64_t> measure_kv_bytes(const LoadedRunner& loaded, const ModelOptions& options,
                                  int index) {
  model::Runner& runner = *loaded.runner;
  const uint32_t rows = std::min(options.step_tokens_max, runner.batch_tokens_max());
  const uint32_t context = options.context_tokens_max != 0 ? options.context_tokens_max
                                                           : runner.shape().context_tokens_max;
  const auto ran = model::run_largest_step(runner, *loaded.device,
                                           {.sequences = std::min(options.sequences_max, rows),
                                            .rows = rows,
                                            .context_tokens = context});
  if (!ran) return with_advice(ran.error());
  if (options.kv_device_bytes != 0) return options.kv_device_bytes;
  const auto memory = kernels::gpu_memory(index);
  if (!memory) return memory.error();
  return kv_bytes_on_gpu(*memory, options.gpu_utilization, 0);
}

}  // namespace

std::string gpu_support() { return "CUDA"; }

Result<std::vector<kernels::GpuInfo>> find_gpus() { return kernels::find_gpus(); }

Result<kernels::GpuMemory> gpu_memory(int index) { return kernels::gpu_memory(index); }

Result<LoadedRunner> load_on_gpu(const model::GgufFile& file, const ModelOptions& options,
                                 int index) {
  auto device = kernels::make_cuda_device({.index = index});
  if (!device) return device.error();
  auto wanted = transformer_options(file, options, **device);
  if (!wanted) return wanted.error();
  wanted->batch_tokens_max = std::max(wanted->batch_tokens_max, kRowsMin);
  auto made = model::GpuTransformer::create(file, **device, *wanted);
  if (!made) return with_advice(made.error());
  LoadedRunner loaded;
  loaded.devices->push_back(*std::move(device));
  loaded.device = loaded.devices->front().get();
  loaded.runner = *std::move(made);
  loaded.architecture = file.get_string_or("general.architecture", "").value();
  loaded.devices_line = loaded.device->description();
  const auto kv_bytes = measure_kv_bytes(loaded, options, index);
  if (!kv_bytes) return kv_bytes.error();
  loaded.kv_device_bytes = *kv_bytes;
  return loaded;
}

}  // namespace spillway::server
