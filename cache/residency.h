// Where a page lives besides the device, and the one transfer of it that may be in flight: one
// enum, one table. The device's own states are those of page_state.h; what is on the device is what
// the prefix tree holds, pinned while a move from it runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/check.h"

namespace spillway::cache {

enum class Tier : uint8_t { kDevice, kHost, kNvme };
inline constexpr size_t kTiers = 3;

enum class Move : uint8_t {
  kNone,
  kDeviceToHost,
  kDeviceToNvme,
  kHostToNvme,
  kNvmeToDevice,
};

struct MoveEnds {
  Tier from, to;
};

// [move]. A copy from a tier needs the page there and leaves it there; a copy to host or NVMe needs
// it absent there. To the device a page goes into memory that is its sequence's alone. Copies from
// host memory to the device are no moves: they pin the host page, and may run beside another
// reader.
inline constexpr std::array<MoveEnds, 5> kMoveEnds = {{
    {Tier::kDevice, Tier::kDevice},  // none
    {Tier::kDevice, Tier::kHost},
    {Tier::kDevice, Tier::kNvme},
    {Tier::kHost, Tier::kNvme},
    {Tier::kNvme, Tier::kDevice},
}};

class Residency {
 public:
  bool in(Tier tier) const { return (tiers_ & bit(tier)) != 0; }
  bool nowhere() const { return tiers_ == 0 && move_ == Move::kNone; }
  Move move() const { return move_; }

  // Whether the transfer may begin now.
  bool may_begin(Move move) const {
    if (move == Move::kNone || move_ != Move::kNone) return false;
    const MoveEnds ends = kMoveEnds[static_cast<size_t>(move)];
    return (ends.from == Tier::kDevice || in(ends.from)) &&
           (ends.to == Tier::kDevice || !in(ends.to));
  }
  void begin(Move move) {
    CHECK(may_begin(move));
    move_ = move;
  }
  // The transfer has ended. `arrived`: its target holds the page.
  void end(bool arrived) {
    CHECK(move_ != Move::kNone);
    const Tier to = kMoveEnds[static_cast<size_t>(move_)].to;
    if (arrived && to != Tier::kDevice) tiers_ |= bit(to);
    move_ = Move::kNone;
  }
  // Whether no transfer reads the page there.
  bool may_drop(Tier tier) const {
    return in(tier) && (move_ == Move::kNone || kMoveEnds[static_cast<size_t>(move_)].from != tier);
  }
  void drop(Tier tier) {
    CHECK(may_drop(tier));
    tiers_ &= static_cast<uint8_t>(~bit(tier));
  }
  // What the store held when it was opened.
  void found_on_nvme() {
    CHECK(!in(Tier::kNvme));
    tiers_ |= bit(Tier::kNvme);
  }

 private:
  static constexpr uint8_t bit(Tier tier) {
    CHECK(tier != Tier::kDevice);
    return static_cast<uint8_t>(1u << static_cast<uint8_t>(tier));
  }
  uint8_t tiers_ = 0;
  Move move_ = Move::kNone;
};

}  // namespace spillway::cache
