// The devices of a model and what computes it on them: a GPU, the processor, or several devices
// that share it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "model/gguf.h"
#include "model/runner.h"
#include "runtime/result.h"
#include "server/cli/options.h"

namespace spillway::server {

using RankDevices = std::vector<std::unique_ptr<kernels::Device>>;  // (rank)

struct LoadedRunner {  // destroyed from the runner up
  // One that ended is replaced by the runner.
  std::unique_ptr<RankDevices> devices = std::make_unique<RankDevices>();
  std::unique_ptr<model::Runner> runner;
  kernels::Device* device = nullptr;  // the engine's: one of them, or all as one
  std::string architecture;
  std::string devices_line;      // for a person
  uint64_t kv_device_bytes = 0;  // for KV pages, on a GPU; 0: the options say how much
};

// Chooses the device, and says so in the log where that was left to us. Reads and repacks the
// weights: about as long as reading the file. Errors name the flag, or the file and what is wrong
// with it. `path` is where the file was opened, and may be again.
Result<LoadedRunner> load_runner(const model::GgufFile& file, const std::string& path,
                                 const ModelOptions& options);

}  // namespace spillway::server
