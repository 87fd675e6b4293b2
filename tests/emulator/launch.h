// Launches kernels on the emulator: each block in turn, blocks and threads in an order from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "kernels/cuda/launch_shape.h"
#include "tests/emulator/block.h"
#include "tests/emulator/defects.h"

namespace spillway::emulator {

// As a stream in order, in the calling thread: when a launch returns it has run. The same seed
// gives the same order.
class Launcher {
 public:
  // With the one seed of the process: SPILLWAY_EMULATOR_SEED where it is set, else a fresh one. The
  // first prints it to stderr, so that whatever fails can be repeated.
  Launcher();
  explicit Launcher(uint64_t seed);

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), const kernels::cuda::LaunchShape& shape,
                  const Arguments&... arguments) {
    run(shape, [&] { kernel(arguments...); });
  }

  // The same of a kernel whose arguments are bound.
  void run(const kernels::cuda::LaunchShape& shape, const std::function<void()>& body);

  uint64_t seed() const { return seed_; }
  const Defects& defects() const { return defects_; }
  std::string text() const;  // the seed and the defects, for a failed expectation

 private:
  uint64_t seed_;
  std::mt19937_64 random_;
  Block block_;
  Defects defects_;
};

}  // namespace spillway::emulator
