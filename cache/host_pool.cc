#include "cache/host_pool.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace spillway::cache {
namespace {

constexpr size_t kUnitsOfPageMax = 128;

uint32_t units_in(size_t bytes, size_t unit_bytes) {
  CHECK(unit_bytes > 0);
  CHECK(bytes / unit_bytes < UINT32_MAX);
  return static_cast<uint32_t>(bytes / unit_bytes);
}

}  // namespace

size_t small_unit_bytes(size_t page_bytes) {
  constexpr size_t kSmallest = kernels::kPageAlignment;
  const size_t least = (page_bytes + kUnitsOfPageMax - 1) / kUnitsOfPageMax;
  return (least + kSmallest - 1) / kSmallest * kSmallest;
}

HostPool::HostPool(std::byte* memory, size_t page_bytes, uint32_t pages, size_t unit_bytes)
    : memory_(memory),
      page_bytes_(page_bytes),
      unit_bytes_(unit_bytes),
      pool_(memory, unit_bytes, units_in(page_bytes * pages, unit_bytes)) {
  CHECK(page_bytes % kernels::kPageAlignment == 0);
  CHECK(unit_bytes <= page_bytes);
}

HostUnits HostPool::acquire(size_t bytes) {
  CHECK(bytes > 0);
  const size_t count = count_for(bytes);
  HostUnits units;
  if (pool_.count(PageState::kFree) < count) return units;
  units.reserve(count);
  while (units.size() < count) units.push_back(pool_.acquire(PageState::kFilling));
  return units;
}

void HostPool::seal(const HostUnits& units) {
  for (const PageId unit : units) pool_.move(unit, PageState::kSealed);
}

void HostPool::release(const HostUnits& units) {
  CHECK(!units.empty());
  // So that who comes next has them in ascending order.
  for (size_t i = units.size(); i > 0; --i) pool_.release(units[i - 1]);
}

void HostPool::fill(const HostUnits& units, std::span<const std::byte> from) const {
  CHECK(count_for(from.size()) <= units.size());
  for (size_t i = 0, at = 0; at < from.size(); ++i, at += unit_bytes_) {
    std::memcpy(unit(units[i]), from.data() + at, std::min(unit_bytes_, from.size() - at));
  }
}

void HostPool::read(const HostUnits& units, std::span<std::byte> to) const {
  CHECK(count_for(to.size()) <= units.size());
  for (size_t i = 0, at = 0; at < to.size(); ++i, at += unit_bytes_) {
    std::memcpy(to.data() + at, unit(units[i]), std::min(unit_bytes_, to.size() - at));
  }
}

std::byte* HostPool::page_data(const HostUnits& units) const {
  CHECK(unit_bytes_ == page_bytes_);
  CHECK(units.size() == 1);
  return unit(units.front());
}

}  // namespace spillway::cache
