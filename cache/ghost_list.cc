#include "cache/ghost_list.h"

#include <algorithm>
#include <bit>

namespace spillway::cache {

GhostList::GhostList(uint64_t pages_max)
    : ghosts_(std::bit_ceil(std::max<uint64_t>(pages_max, kWays))) {}

// Page keys are hashes, but owners of other tiers may number their pages.
GhostList::Ghost* GhostList::bucket(uint64_t key) {
  const uint64_t mixed = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15u;
  return &ghosts_[(mixed >> 32) % (ghosts_.size() / kWays) * kWays];
}

void GhostList::put(uint64_t key, const PageMemory& history) {
  Ghost* ways = bucket(key);
  Ghost* place = ways;
  for (Ghost* ghost = ways; ghost != ways + kWays; ++ghost) {
    const bool same = ghost->history.uses > 0 && ghost->key == key;
    if (same || ghost->history.uses == 0) {
      place = ghost;
      if (same) break;
    } else if (place->history.uses > 0 && ghost->history.last_use < place->history.last_use) {
      place = ghost;
    }
  }
  *place = {key, history};
}

PageMemory GhostList::take(uint64_t key) {
  Ghost* ways = bucket(key);
  for (Ghost* ghost = ways; ghost != ways + kWays; ++ghost) {
    if (ghost->history.uses == 0 || ghost->key != key) continue;
    const PageMemory history = ghost->history;
    *ghost = {};
    return history;
  }
  return {};
}

}  // namespace spillway::cache
