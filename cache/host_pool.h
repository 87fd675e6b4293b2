// The host tier's memory for the pages of one layer group, in units of one size.
//
// Where pages lie as they are a unit is a page, which a stream copies in one piece. Where a codec
// makes them smaller a unit is 4 KiB, or a 128th of a page if that is more, and a page takes as
// many as its bytes need, wherever they are free. So nothing is lost but what is behind a page's
// last byte, less than one unit, and there is room for a page exactly when enough units are free.
// (Extents in one piece would spare workers the gathering, about 30 us of the 240 that decoding a
// page of 360 KiB takes. But pages differ by a unit or two, so that they would leave holes which
// fit nobody, and one page too large could cost any number of others.)
//
// Owner and thread: Tiers, on the engine's thread; fill() and read() on any, for units that stay
// acquired meanwhile. A page is pinned as a whole. Misuse is a CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/page_pool.h"

namespace spillway::cache {

// Those of one page, in the order of its bytes; none: the page has no place here.
using HostUnits = std::vector<PageId>;

// Bytes of a unit for pages of this size that a codec makes smaller.
size_t small_unit_bytes(size_t page_bytes);

class HostPool {
 public:
  // `memory` has room for `pages` as they are, and outlives the pool. REQUIRES: memory, page_bytes
  // and unit_bytes are multiples of 4 KiB, unit_bytes <= page_bytes, pages >= 1.
  HostPool(std::byte* memory, size_t page_bytes, uint32_t pages, size_t unit_bytes);

  // To be filled. None: fewer are free than so many bytes need.
  HostUnits acquire(size_t bytes);
  void seal(const HostUnits& units);  // they are filled
  void release(const HostUnits& units);

  void pin(const HostUnits& units) { pool_.pin(units.front()); }  // REQUIRES: sealed
  void unpin(const HostUnits& units) { pool_.unpin(units.front()); }
  uint32_t pins(const HostUnits& units) const { return pool_.pins(units.front()); }

  // REQUIRES: the units have room for so many bytes.
  void fill(const HostUnits& units, std::span<const std::byte> from) const;
  void read(const HostUnits& units, std::span<std::byte> to) const;
  // In one piece. REQUIRES: a unit is a page.
  std::byte* page_data(const HostUnits& units) const;

  size_t page_bytes() const { return page_bytes_; }
  uint32_t used_units() const { return pool_.capacity() - pool_.count(PageState::kFree); }
  uint64_t used_bytes() const { return uint64_t{used_units()} * unit_bytes_; }
  uint64_t capacity_bytes() const { return uint64_t{pool_.capacity()} * unit_bytes_; }
  std::string check_integrity() const { return pool_.check_integrity(); }

 private:
  size_t count_for(size_t bytes) const { return (bytes + unit_bytes_ - 1) / unit_bytes_; }
  std::byte* unit(PageId unit) const { return memory_ + index_of(unit) * unit_bytes_; }

  std::byte* const memory_;
  const size_t page_bytes_, unit_bytes_;
  PagePool pool_;  // of units
};

}  // namespace spillway::cache
