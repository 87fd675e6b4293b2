// Memory for a CUDA device: its own, and host memory that it may copy from and to.
//
// Not in a step: each of these waits for the GPU, and so may freeing what they gave, which any
// thread may do.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/cuda/health.h"
#include "kernels/device.h"
#include "runtime/result.h"

namespace spillway::kernels::cuda {

// On the device, zeroed, aligned to 4 KiB. What a lost device held went with it: then freeing does
// nothing. kResourceExhausted: the GPU has not that much left.
Result<DeviceMemory> allocate_device(const std::shared_ptr<Health>& health, size_t bytes);

// On the host, zeroed, pinned: mapped by us and then registered, so that it stays what it is when
// the device is lost. Starts on a huge page. kResourceExhausted: the system or the driver has not
// that much left.
Result<DeviceMemory> allocate_pinned(const std::shared_ptr<Health>& health, size_t bytes);

}  // namespace spillway::kernels::cuda
