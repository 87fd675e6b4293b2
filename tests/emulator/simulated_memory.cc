#include "tests/emulator/simulated_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <iterator>

#include "runtime/check.h"

namespace spillway::emulator {
namespace {

constexpr size_t kOffset = 256;  // what cudaMalloc promises, and no more
constexpr size_t kSystemPage = 4096;

}  // namespace

SimulatedMemory::~SimulatedMemory() { clear(); }

void* SimulatedMemory::allocate(size_t bytes, int device) {
  if (bytes > device_bytes_free()) return nullptr;
  Region region;
  region.bytes = bytes;
  region.device = device;
  region.mapped = (bytes + kOffset + kSystemPage - 1) / kSystemPage * kSystemPage;
  void* const mapping = mmap(nullptr, region.mapped, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(mapping != MAP_FAILED);
  region.mapping = static_cast<std::byte*>(mapping);
  region.at = region.mapping + kOffset;
  std::memset(region.mapping, 0xa5, region.mapped);
  if (traps_) CHECK(mprotect(region.mapping, region.mapped, PROT_NONE) == 0);
  device_used_ += bytes;
  regions_.emplace(region.at, region);
  return region.at;
}

bool SimulatedMemory::free(void* at) {
  const auto found = regions_.find(static_cast<std::byte*>(at));
  if (found == regions_.end() || !found->second.on_device()) return false;
  munmap(found->second.mapping, found->second.mapped);
  device_used_ -= found->second.bytes;
  regions_.erase(found);
  return true;
}

SimulatedMemory::Registered SimulatedMemory::add_host(void* at, size_t bytes) {
  auto* const first = static_cast<std::byte*>(at);
  for (const auto& [begin, region] : regions_) {
    if (first < region.at + region.bytes && region.at < first + bytes) return Registered::kAlready;
  }
  if (bytes > pinned_bytes_ - pinned_used_) return Registered::kTooMuch;
  pinned_used_ += bytes;
  Region region;
  region.at = first;
  region.bytes = bytes;
  regions_.emplace(first, region);
  return Registered::kYes;
}

bool SimulatedMemory::remove_host(void* at) {
  const auto found = regions_.find(static_cast<std::byte*>(at));
  if (found == regions_.end() || found->second.on_device()) return false;
  pinned_used_ -= found->second.bytes;
  regions_.erase(found);
  return true;
}

void SimulatedMemory::clear() {
  for (const auto& [begin, region] : regions_) {
    if (region.on_device()) munmap(region.mapping, region.mapped);
  }
  regions_.clear();
  device_used_ = pinned_used_ = 0;
}

const SimulatedMemory::Region* SimulatedMemory::find(const void* at) const {
  auto next = regions_.upper_bound(static_cast<const std::byte*>(at));
  if (next == regions_.begin()) return nullptr;
  const Region& region = std::prev(next)->second;
  return region.holds(at, 1) ? &region : nullptr;
}

std::byte* SimulatedMemory::host_of(uint64_t device_address, size_t bytes) const {
  auto* const host = reinterpret_cast<std::byte*>(device_address - kDeviceAlias);
  const Region* const region = find(host);
  if (region == nullptr || region->on_device() || !region->holds(host, bytes)) return nullptr;
  return host;
}

void SimulatedMemory::protect(bool on, int device) {
  if (!traps_) return;
  for (const auto& [begin, region] : regions_) {
    if (!region.on_device() || (device != kEveryDevice && region.device != device)) continue;
    const int access = on ? PROT_NONE : PROT_READ | PROT_WRITE;
    CHECK(mprotect(region.mapping, region.mapped, access) == 0);
  }
}

std::string SimulatedMemory::left() const {
  std::string out;
  for (const auto& [begin, region] : regions_) {
    out += std::to_string(region.bytes) + " bytes " +
           (region.on_device() ? "of the GPU are not freed\n" : "are still registered\n");
  }
  return out;
}

}  // namespace spillway::emulator
