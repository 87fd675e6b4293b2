// The device that every machine has: its memory is host memory, its streams are threads.
// The compute stream is a team of `threads`; each copy stream is one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"

namespace spillway::kernels {

struct CpuDeviceOptions {
  uint32_t threads = 1;  // of the compute stream; at least 1
  std::string level;     // instruction set, for the description: "avx512vnni"
  bool pin = true;       // one processor per compute thread, if the team takes all there are
};

// Must be destroyed before the executors that its events resume on.
std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace spillway::kernels
