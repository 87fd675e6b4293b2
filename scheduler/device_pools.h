// The memory of the device's page pools: all of it at the start, and again when a device has taken
// the place of one that ended. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "io/ring.h"
#include "kernels/device.h"
#include "runtime/result.h"

namespace spillway::scheduler {

// Tells the ring of memory for pages, in pieces of whole pages of at most 1 GiB. An error costs
// speed only.
Result<> register_pages(io::Ring& ring, std::span<std::byte> memory, size_t page_bytes);

class DevicePools {
 public:
  struct Size {
    size_t page_bytes = 0;
    uint32_t pages = 0;
    size_t bytes() const { return pages * page_bytes; }
  };
  // `groups` (group); `device` outlives the pools.
  DevicePools(kernels::Device& device, std::vector<Size> groups)
      : device_(device), sizes_(std::move(groups)) {}

  // All groups' memory, or an error, which names the flag to change, and none. REQUIRES: none is
  // there.
  Result<> allocate();
  // As register_pages(), where a disk reaches the memory.
  Result<> register_with(io::Ring& ring);
  // The device has ended. `ring`: which the memory may be registered with, or null. Where a disk
  // may still write to some of it, it stays, unused, until the next time.
  void drop(io::Ring* ring, bool still_written);

  const std::vector<std::byte*>& bases() const { return bases_; }  // (group)

 private:
  kernels::Device& device_;
  const std::vector<Size> sizes_;
  std::vector<kernels::DeviceMemory> memory_;   // of a group each, or of all
  std::vector<std::byte*> bases_;               // (group)
  std::vector<kernels::DeviceMemory> retired_;  // where orphans' operations may yet write
};

}  // namespace spillway::scheduler
