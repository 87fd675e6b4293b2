#include "server/cli/load_runner.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "kernels/cpu_device.h"
#include "kernels/cpu_level.h"
#include "model/divided_transformer.h"
#include "model/transformer.h"
#include "runtime/log.h"
#include "server/cli/device_choice.h"
#include "server/cli/gpus.h"
#include "server/cli/kv_type.h"

namespace spillway::server {
namespace {

uint32_t compute_threads(uint32_t asked) {
  return asked != 0 ? asked : std::max(1u, std::thread::hardware_concurrency());
}

std::string devices_line(const LoadedRunner& loaded, const model::Division& division) {
  const std::string one = loaded.devices->front()->description();
  if (division.ranks() == 1) return one;
  return std::to_string(division.ranks()) + " of " + one + ": " +
         std::to_string(division.pipeline) +
         (division.pipeline == 1 ? " stage of " : " stages of ") + std::to_string(division.tensor);
}

// What a rank's device is made with, at the start and in the place of one that ended.
using MakeDevice = std::function<std::unique_ptr<kernels::Device>()>;

Result<void> load_divided(const model::GgufFile& file, const model::Division& division,
                          const model::TransformerOptions& options, const std::string& path,
                          const MakeDevice& make_device, LoadedRunner& loaded) {
  std::vector<kernels::Device*> devices;
  for (const auto& device : *loaded.devices) devices.push_back(device.get());
  auto made = model::DividedTransformer::create(file, devices, division, options);
  if (!made) return made.error();
  (*made)->set_spare({.replace_device = [make_device, all = loaded.devices.get()](
                                            uint32_t rank) -> Result<kernels::Device*> {
                        (*all)[rank].reset();
                        (*all)[rank] = make_device();
                        return (*all)[rank].get();
                      },
                      .open_file = [path] { return model::GgufFile::open(path); }});
  loaded.device = &(*made)->device();
  loaded.runner = *std::move(made);
  return {};
}

Result<void> load_whole(const model::GgufFile& file, const model::TransformerOptions& options,
                        LoadedRunner& loaded) {
  auto made = model::Transformer::create(file, *loaded.devices->front(), options);
  if (!made) return made.error();
  loaded.device = loaded.devices->front().get();
  loaded.runner = *std::move(made);
  return {};
}

Result<LoadedRunner> load_on_cpu(const model::GgufFile& file, const std::string& path,
                                 const ModelOptions& options) {
  const auto level = kernels::cpu_level_from_environment();
  if (!level) return level.error();
  const auto kv_type = kv_type_of(options.kv_type);
  if (!kv_type) return kv_type.error();
  const model::Division division{.tensor = options.tensor_parallel,
                                 .pipeline = options.pipeline_parallel};
  const uint32_t threads = std::max(1u, compute_threads(options.threads) / division.ranks());
  LoadedRunner loaded;
  // Teams that share the processors are placed by the system.
  const kernels::CpuDeviceOptions device{.threads = threads,
                                         .level = std::string(kernels::cpu_level_name(*level)),
                                         .pin = division.ranks() == 1};
  const MakeDevice make_device = [device] { return kernels::make_cpu_device(device); };
  for (uint32_t r = 0; r < division.ranks(); ++r) loaded.devices->push_back(make_device());
  const model::TransformerOptions wanted{.level = *level,
                                         .kv_type = *kv_type,
                                         .page_tokens = options.page_tokens,
                                         .batch_tokens_max = options.step_tokens_max,
                                         .threads = threads};
  const Result<void> done = division.ranks() == 1
                                ? load_whole(file, wanted, loaded)
                                : load_divided(file, division, wanted, path, make_device, loaded);
  if (!done) return done.error();
  loaded.architecture = file.get_string_or("general.architecture", "").value();
  loaded.devices_line = devices_line(loaded, division);
  return loaded;
}

}  // namespace

Result<LoadedRunner> load_runner(const model::GgufFile& file, const std::string& path,
                                 const ModelOptions& options) {
  const uint32_t devices = options.tensor_parallel * options.pipeline_parallel;
  const bool asked = options.device.kind != DeviceWish::Kind::kCpu;
  const auto choice = choose_device(
      options.device, devices, asked ? find_gpus() : Result<std::vector<kernels::GpuInfo>>({}));
  if (!choice) return choice.error();
  if (!choice->why.empty()) {
    spdlog::info("device wanted=auto used={} why=\"{}\"",
                 choice->gpu ? "cuda:" + std::to_string(choice->index) : "cpu", choice->why);
  }
  if (!options.batch_invariant && !choice->gpu) {
    return invalid_argument(
        "--no-batch-invariant: that is for a GPU (--device cuda), and the model runs on the "
        "processor, which would be no faster; leave the flag out");
  }
  return choice->gpu ? load_on_gpu(file, options, choice->index) : load_on_cpu(file, path, options);
}

}  // namespace spillway::server
