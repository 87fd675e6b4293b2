// Where a model runs: what --device says, and what that means on this machine. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/gpus.h"
#include "runtime/result.h"

namespace spillway::server {

struct DeviceWish {
  enum class Kind : uint8_t { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  int index = 0;  // of the GPU
};

// "auto", "cpu", "cuda" (the first GPU) or "cuda:1".
Result<DeviceWish> parse_device(std::string_view text);

struct DeviceChoice {
  bool gpu = false;
  int index = 0;
  std::string why;  // for a person; empty where the wish left no choice
};

// `found` is what this program finds of GPUs, and `devices` how many share the model. An error says
// why there is no such GPU, or what to ask for.
Result<DeviceChoice> choose_device(const DeviceWish& wish, uint32_t devices,
                                   const Result<std::vector<kernels::GpuInfo>>& found);

}  // namespace spillway::server
