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

struct LoadedRunner {                                     // destroyed from the runner up
  std::vector<std::unique_ptr<kernels::Device>> devices;  // (rank)
  std::unique_ptr<model::Runner> runner;
  kernels::Device* device = nullptr;  // the engine's: one of them, or all as one
  std::string architecture;
  std::string devices_line;      // for a person
  uint64_t kv_device_bytes = 0;  // for KV pages, on a GPU; 0: the options say how much
};

// Chooses the device, and says so in the log where that was left to us. Reads and repacks the
// weights: about as long as reading the file. Errors name the flag, or the file and what is wrong
// with it.
Result<LoadedRunner> load_runner(const model::GgufFile& file, const ModelOptions& options);

}  // namespace spillway::server
