#include "scheduler/device_pools.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/check.h"

namespace spillway::scheduler {

Result<> register_pages(io::Ring& ring, std::span<std::byte> memory, size_t page_bytes) {
  constexpr size_t kPieceMax = size_t{1} << 30;
  const size_t piece = kPieceMax / page_bytes * page_bytes;
  for (size_t at = 0; at < memory.size(); at += piece) {
    const Result<> done =
        ring.register_memory(memory.subspan(at, std::min(piece, memory.size() - at)));
    if (!done) return done;
  }
  return {};
}

// A GPU gives all groups' pages in one allocation, sized by what it has left. Where host code
// reaches the memory each group has a block of its own, which a set of devices parts
// (device_set.h).
Result<> DevicePools::allocate() {
  CHECK(memory_.empty());
  size_t all = 0;
  for (const Size& size : sizes_) all += size.bytes();
  const bool at_once = !device_.host_reaches_memory();
  std::byte* next = nullptr;
  for (const Size& size : sizes_) {
    if (memory_.empty() || !at_once) {
      auto allocated = device_.allocate(at_once ? all : size.bytes());
      if (!allocated) {
        memory_.clear();
        bases_.clear();
        return Error{allocated.error().code, "the KV pool: " + allocated.error().message +
                                                 " (--kv-device-size says how much it is)"};
      }
      next = allocated->data;
      memory_.push_back(*std::move(allocated));
    }
    bases_.push_back(next);
    next += size.bytes();
  }
  return {};
}

Result<> DevicePools::register_with(io::Ring& ring) {
  if (!device_.host_reaches_memory()) return {};
  for (size_t g = 0; g < memory_.size(); ++g) {
    const Result<> done =
        register_pages(ring, {memory_[g].data, memory_[g].bytes}, sizes_[g].page_bytes);
    if (!done) return done;
  }
  return {};
}

void DevicePools::drop(io::Ring* ring, bool still_written) {
  bases_.clear();
  for (kernels::DeviceMemory& memory : std::exchange(memory_, {})) {
    if (ring != nullptr) ring->forget_memory({memory.data, memory.bytes});
    retired_.push_back(std::move(memory));
  }
  if (!still_written) retired_.clear();
}

}  // namespace spillway::scheduler
