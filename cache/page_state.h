// The states of a page in a pool, and the moves between them: one enum, one table. Every move goes
// through PagePool::move(), which CHECKs it against the table and keeps one counter per state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway::cache {

enum class PageState : uint8_t {
  kFree,      // nobody's; has no pins
  kWritable,  // one sequence writes it, nobody else knows of it
  kSealed,    // complete, immutable, shared through the prefix tree
  kFilling,   // the target of a transfer from another tier
  kOrphaned,  // given up, but a device or disk operation on it has not ended yet
};

inline constexpr size_t kPageStates = 5;

// kLegalMove[from][to]
inline constexpr std::array<std::array<bool, kPageStates>, kPageStates> kLegalMove = {{
    // free   writable sealed filling orphaned
    {{false, true, false, true, false}},   // free: a sequence or a transfer takes it
    {{true, false, true, false, true}},    // writable: given back, completed, or aborted in a step
    {{true, false, false, false, true}},   // sealed: evicted, at once or when a transfer has ended
    {{true, true, true, false, true}},     // filling: failed, verified, or aborted in flight
    {{true, false, false, false, false}},  // orphaned: the operation has ended
}};

constexpr bool is_legal(PageState from, PageState to) {
  return kLegalMove[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace spillway::cache
