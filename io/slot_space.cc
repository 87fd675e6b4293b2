#include "io/slot_space.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::io {
namespace {

std::vector<uint32_t> runs_or_own(std::vector<uint32_t> runs, size_t classes) {
  if (!runs.empty()) return runs;
  for (uint32_t i = 0; i < classes; ++i) runs.push_back(i);
  return runs;
}

}  // namespace

SlotSpace::SlotSpace(uint32_t units, std::vector<uint32_t> classes, std::vector<uint32_t> runs)
    : units_(units),
      classes_(std::move(classes)),
      runs_(runs_or_own(std::move(runs), classes_.size())),
      next_(classes_.size(), 0),
      free_slots_(classes_.size(), 0) {
  CHECK(!classes_.empty());
  CHECK(runs_.size() == classes_.size());
  CHECK(*std::max_element(runs_.begin(), runs_.end()) < next_.size());
  CHECK(classes_.front() > 0);
  CHECK(std::is_sorted(classes_.begin(), classes_.end()));
  if (units > 0) add_hole(0, units);
}

std::optional<uint32_t> SlotSpace::class_of(uint32_t units) const {
  const auto found = std::lower_bound(classes_.begin(), classes_.end(), units);
  if (found == classes_.end()) return std::nullopt;
  return static_cast<uint32_t>(found - classes_.begin());
}

std::optional<uint32_t> SlotSpace::take(uint32_t size_class) {
  const uint32_t units = classes_[size_class];
  const uint32_t run = runs_[size_class];
  uint32_t first = next_[run];
  auto hole = holes_.find(first);
  if (hole == holes_.end() || hole->second < units) {
    const uint64_t some_more = uint64_t{units} * kRunSlots;
    const uint32_t wanted = static_cast<uint32_t>(std::min<uint64_t>(some_more, UINT32_MAX));
    auto chosen = by_size_.lower_bound({wanted, 0});
    if (chosen == by_size_.end()) {
      if (by_size_.empty()) return std::nullopt;
      --chosen;  // the largest
      if (chosen->first / 2 < units) chosen = by_size_.lower_bound({units, 0});
      if (chosen == by_size_.end()) return std::nullopt;
    }
    const auto [hole_units, hole_first] = *chosen;
    if (hole_units < units) return std::nullopt;
    first = hole_first;
    if (hole_units / 2 >= wanted && is_end_of_another_run(first, run)) {
      first += hole_units / 2;
    }
    hole = holes_.find(hole_first);
  }
  cut(hole, first, units);
  next_[run] = first + units;
  return first;
}

bool SlotSpace::is_end_of_another_run(uint32_t unit, uint32_t run) const {
  for (uint32_t other = 0; other < next_.size(); ++other) {
    if (other != run && next_[other] == unit && unit != 0) return true;
  }
  return false;
}

bool SlotSpace::claim(uint32_t first, uint32_t units) {
  CHECK(units > 0);
  auto hole = holes_.upper_bound(first);
  if (hole == holes_.begin()) return false;
  --hole;
  const uint64_t hole_end = uint64_t{hole->first} + hole->second;
  if (uint64_t{first} + units > hole_end) return false;
  cut(hole, first, units);
  return true;
}

void SlotSpace::release(uint32_t first, uint32_t units) {
  CHECK(units > 0);
  CHECK(uint64_t{first} + units <= units_);
  uint32_t end = first + units;
  auto after = holes_.lower_bound(first);
  if (after != holes_.end()) {
    CHECK(after->first >= end);
    if (after->first == end) {
      end += after->second;
      auto joined = after++;
      remove_hole(joined);
    }
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    const uint32_t before_end = before->first + before->second;
    CHECK(before_end <= first);
    if (before_end == first) {
      first = before->first;
      remove_hole(before);
    }
  }
  add_hole(first, end - first);
}

void SlotSpace::cut(Holes::iterator hole, uint32_t first, uint32_t units) {
  const auto [hole_first, hole_units] = *hole;
  CHECK(first >= hole_first);
  CHECK(uint64_t{first} + units <= uint64_t{hole_first} + hole_units);
  remove_hole(hole);
  if (first > hole_first) add_hole(hole_first, first - hole_first);
  const uint32_t rest = hole_first + hole_units - (first + units);
  if (rest > 0) add_hole(first + units, rest);
}

void SlotSpace::add_hole(uint32_t first, uint32_t units) {
  holes_.emplace(first, units);
  by_size_.emplace(units, first);
  free_units_ += units;
  for (size_t i = 0; i < classes_.size(); ++i) free_slots_[i] += units / classes_[i];
}

void SlotSpace::remove_hole(Holes::iterator hole) {
  const auto [first, units] = *hole;
  for (size_t i = 0; i < classes_.size(); ++i) free_slots_[i] -= units / classes_[i];
  free_units_ -= units;
  by_size_.erase({units, first});
  holes_.erase(hole);
}

std::string SlotSpace::check_integrity() const {
  if (by_size_.size() != holes_.size()) return "holes by size are not the holes";
  uint64_t units = 0, end = 0;
  std::vector<uint64_t> slots(classes_.size(), 0);
  for (const auto& [first, length] : holes_) {
    if (length == 0) return "an empty hole";
    if (units > 0 && first <= end) return "holes that overlap or touch";
    end = uint64_t{first} + length;
    if (end > units_) return "a hole beyond the end";
    if (!by_size_.contains({length, first})) return "a hole is missing in the order by size";
    units += length;
    for (size_t i = 0; i < classes_.size(); ++i) slots[i] += length / classes_[i];
  }
  if (units != free_units_) return "free units are not the sum of the holes";
  if (slots != free_slots_) return "free slots are not what the holes have room for";
  return "";
}

}  // namespace spillway::io
