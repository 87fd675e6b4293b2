// Where tools/setup puts the real models: $SPILLWAY_CACHE, else $XDG_CACHE_HOME/spillway, else
// ~/.cache/spillway.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "model/gguf.h"

namespace spillway::model {

inline constexpr const char* kSmolLm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr const char* kGemma3 = "gemma-3-270m-q4_k_m.gguf";

inline std::string cached_model_path(const std::string& name) {
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::string(value == nullptr ? "" : value);
  };
  std::string folder = variable("SPILLWAY_CACHE");
  if (folder.empty() && !variable("XDG_CACHE_HOME").empty()) {
    folder = variable("XDG_CACHE_HOME") + "/spillway";
  }
  if (folder.empty()) folder = variable("HOME") + "/.cache/spillway";
  return folder + "/" + name;
}

// A test whose model is missing fails with this line.
inline GgufFile open_cached_model(const std::string& name) {
  auto file = GgufFile::open(cached_model_path(name));
  if (!file) throw std::runtime_error(file.error().message + "; run tools/setup --test");
  return *std::move(file);
}

}  // namespace spillway::model
