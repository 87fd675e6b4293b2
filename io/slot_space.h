// Which units of the slot area are free. Slots of any size class come out of one shared area, so no
// class starves another for good: freed neighbours join, whatever they held.
//
// A class goes on behind its last slot, so that pages put together lie together (one read gets a
// run of them); classes of one run, which hold pages that a codec made differently small, follow
// one another. Where a run cannot go on, it moves to the smallest hole with room for some more, and
// to the middle of it if another run is filling that hole from its start. Where all holes are small
// the one that fits best is taken.
//
// Pure bookkeeping: no I/O, one thread. All sizes in units of kUnitBytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace spillway::io {

class SlotSpace {
 public:
  static constexpr uint32_t kRunSlots = 16;

  // `classes`: ascending, positive. `runs`: which run each is of; empty: each of its own.
  SlotSpace(uint32_t units, std::vector<uint32_t> classes, std::vector<uint32_t> runs = {});

  // The smallest class that holds `units`, or nothing.
  std::optional<uint32_t> class_of(uint32_t units) const;
  uint32_t class_units(uint32_t size_class) const { return classes_[size_class]; }

  // First unit of a free slot, now taken; nothing when there is no room. O(log holes).
  std::optional<uint32_t> take(uint32_t size_class);
  // Takes these units; false, and no change, if any is outside or taken. For opening.
  bool claim(uint32_t first, uint32_t units);
  // REQUIRES: they are taken.
  void release(uint32_t first, uint32_t units);

  // take() succeeds as often, if nothing else changes and no other class takes. O(1).
  uint64_t free_slots(uint32_t size_class) const { return free_slots_[size_class]; }
  uint64_t free_units() const { return free_units_; }
  uint32_t units() const { return units_; }
  // Empty, or what is wrong.
  std::string check_integrity() const;

 private:
  using Holes = std::map<uint32_t, uint32_t>;  // first unit -> units

  void add_hole(uint32_t first, uint32_t units);
  void remove_hole(Holes::iterator hole);
  // Cuts [first, first + units) out of `hole`. REQUIRES: it lies inside.
  void cut(Holes::iterator hole, uint32_t first, uint32_t units);
  bool is_end_of_another_run(uint32_t unit, uint32_t run) const;

  const uint32_t units_;
  const std::vector<uint32_t> classes_;
  const std::vector<uint32_t> runs_;  // (class)
  Holes holes_;
  std::set<std::pair<uint32_t, uint32_t>> by_size_;  // (units, first unit) of each hole
  std::vector<uint32_t> next_;                       // per run: the unit behind its last slot
  std::vector<uint64_t> free_slots_;                 // per class: over all holes
  uint64_t free_units_ = 0;
};

}  // namespace spillway::io
