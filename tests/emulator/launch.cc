#include "tests/emulator/launch.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>

namespace spillway::emulator {
namespace {

using kernels::cuda::Index3;
using kernels::cuda::LaunchShape;

uint64_t seed_of_process() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("SPILLWAY_EMULATOR_SEED");
    const uint64_t value =
        text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::cerr << "SPILLWAY_EMULATOR_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

// The limits of every compute capability from 8.0 on.
bool fits(const LaunchShape& shape) {
  const bool threads = shape.threads != 0 && shape.threads <= Block::kThreadsMax &&
                       shape.threads % kWarpThreads == 0;
  const bool grid = shape.grid.x <= 0x7fffffff && shape.grid.y <= 65535 && shape.grid.z <= 65535;
  return threads && grid && shape.shared_bytes <= kernels::cuda::kDynamicSharedBytesMax;
}

}  // namespace

Launcher::Launcher() : Launcher(seed_of_process()) {}
Launcher::Launcher(uint64_t seed) : seed_(seed), random_(seed) {}

std::string Launcher::text() const {
  return "SPILLWAY_EMULATOR_SEED=" + std::to_string(seed_) + "\n" + defects_.text();
}

void Launcher::run(const LaunchShape& shape, const std::function<void()>& body) {
  const Index3& grid = shape.grid;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (blocks == 0) return;
  if (!fits(shape)) {
    defects_.add(DefectKind::kBadLaunch, std::to_string(shape.threads) + " threads, " +
                                             std::to_string(shape.shared_bytes) +
                                             " bytes of shared memory");
    return;
  }
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  for (const uint64_t i : order) {
    const Index3 index{.x = static_cast<uint32_t>(i % grid.x),
                       .y = static_cast<uint32_t>(i / grid.x % grid.y),
                       .z = static_cast<uint32_t>(i / grid.x / grid.y)};
    block_.run({grid, index, shape.threads, shape.shared_bytes}, body, random_, defects_);
  }
}

}  // namespace spillway::emulator
