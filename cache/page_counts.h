// Numbers of pages, one per layer group.
#pragma once

#include <array>
#include <cstdint>

namespace spillway::cache {

inline constexpr uint32_t kGroupsMax = 2;  // layer groups of one model: full attention, one window

using PageCounts = std::array<uint32_t, kGroupsMax>;  // [group]

}  // namespace spillway::cache
