// From a model file to something that answers: file, tokenizer, template, transformer, engine.
#pragma once

#include <memory>
#include <string>

#include "runtime/result.h"
#include "server/api/served_model.h"
#include "server/cli/options.h"

namespace spillway::server {

struct LoadedModel {
  std::shared_ptr<const ServedModel> served;
  std::string banner;  // lines for a person: what was found
};

// Takes seconds. The engine stops when the last owner of `served` lets go.
Result<LoadedModel> load_model(const ModelOptions& options);

// The given path, or where tools/setup keeps the default model: $SPILLWAY_CACHE, else
// $XDG_CACHE_HOME/spillway, else ~/.cache/spillway.
std::string model_path_or_default(const std::string& path);
// Memory for KV pages when no size is given.
uint64_t default_kv_bytes();
// What serve takes for a host tier where nothing is said. Where the device's memory is the host's,
// a tier there would hold copies of what is there already.
inline uint64_t default_host_bytes(bool gpu) { return gpu ? default_kv_bytes() : 0; }

}  // namespace spillway::server
