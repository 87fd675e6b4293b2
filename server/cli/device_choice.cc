#include "server/cli/device_choice.h"

#include <algorithm>
#include <charconv>

namespace spillway::server {
namespace {

constexpr const char* kOneGpu =
    "a model cannot be divided over GPUs yet (--tensor-parallel-size, --pipeline-parallel-size)";

std::string too_old(const kernels::GpuInfo& gpu) {
  return "GPU " + std::to_string(gpu.index) + " (" + gpu.description() +
         ") is older than this program has kernels for: sm_80 or later";
}

DeviceChoice choose_freely(uint32_t devices, const Result<std::vector<kernels::GpuInfo>>& found) {
  if (!found) return {.why = found.error().message};
  if (devices > 1) return {.why = kOneGpu};
  const auto usable =
      std::find_if(found->begin(), found->end(), [](const auto& gpu) { return gpu.has_kernels(); });
  if (usable == found->end()) return {.why = too_old(found->front())};
  return {.gpu = true, .index = usable->index, .why = usable->description() + " can be used"};
}

}  // namespace

Result<DeviceWish> parse_device(std::string_view text) {
  if (text == "auto") return DeviceWish{};
  if (text == "cpu") return DeviceWish{.kind = DeviceWish::Kind::kCpu};
  DeviceWish wish{.kind = DeviceWish::Kind::kCuda};
  if (text == "cuda") return wish;
  const std::string_view prefix = "cuda:";
  const bool begins = text.starts_with(prefix);
  if (begins) text.remove_prefix(prefix.size());
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), wish.index);
  if (!begins || ec != std::errc() || end != text.data() + text.size() || wish.index < 0) {
    return invalid_argument("is none of auto, cpu, cuda and cuda:INDEX");
  }
  return wish;
}

Result<DeviceChoice> choose_device(const DeviceWish& wish, uint32_t devices,
                                   const Result<std::vector<kernels::GpuInfo>>& found) {
  if (wish.kind == DeviceWish::Kind::kCpu) return DeviceChoice{};
  if (wish.kind == DeviceWish::Kind::kAuto) return choose_freely(devices, found);
  if (!found) return Error{found.error().code, "--device cuda: " + found.error().message};
  if (devices > 1) {
    return invalid_argument(std::string("--device cuda: ") + kOneGpu +
                            "; --device cpu divides it over the processor's threads");
  }
  const auto gpu = std::find_if(found->begin(), found->end(),
                                [&](const auto& one) { return one.index == wish.index; });
  if (gpu == found->end()) {
    return invalid_argument("--device cuda:" + std::to_string(wish.index) + ": this process sees " +
                            std::to_string(found->size()) +
                            (found->size() == 1 ? " GPU, cuda:0" : " GPUs, from cuda:0 on"));
  }
  if (!gpu->has_kernels()) {
    return Error{ErrorCode::kUnavailable, "--device cuda: " + too_old(*gpu)};
  }
  return DeviceChoice{.gpu = true, .index = wish.index, .why = {}};
}

}  // namespace spillway::server
