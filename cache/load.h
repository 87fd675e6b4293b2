// The pages of one sequence that are on their way to the device. Made by Tiers::begin_load(); its
// sequence takes them page by page or at once with Tiers::adopt(), or gives them up. A load by
// bands brings the first layers of all its pages, then the next ones, so that a step may run under
// it. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/page_directory.h"
#include "cache/residency.h"
#include "kernels/device.h"
#include "runtime/semaphore.h"
#include "runtime/stop.h"

namespace spillway::cache {

// A device page that a transfer fills. Shared by the load and by the operation that writes the
// page, so that it is free again only when both have let go (cases K5, S7).
class FillingPage {
 public:
  FillingPage(KvCache& cache, uint32_t group, PageId page)
      : cache_(cache), group_(group), page_(page) {}
  ~FillingPage() {
    if (page_ != kNoPage) cache_.free_filling(group_, page_);
  }
  FillingPage(const FillingPage&) = delete;
  FillingPage& operator=(const FillingPage&) = delete;

  std::byte* data() const { return cache_.page_data(group_, page_); }
  PageId id() const { return page_; }
  PageId take() { return std::exchange(page_, kNoPage); }
  void give_up() {  // something still writes it
    if (!std::exchange(orphaned_, true)) cache_.orphan_filling(group_, page_);
  }

 private:
  KvCache& cache_;
  const uint32_t group_;
  PageId page_;
  bool orphaned_ = false;
};

// A step of the load's sequence that computes with the first layers while later ones still come.
// The step loop holds it until the step has ended, and with it each page that the step reads or
// writes. Nothing of it is the sequence's until Tiers::end_step_under().
struct StepUnderLoad {
  using Pages = std::array<std::shared_ptr<FillingPage>, kGroupsMax>;
  std::vector<Pages> read;                             // of the load
  std::vector<Pages> written;                          // behind it
  std::array<std::vector<PageId>, kGroupsMax> tables;  // the sequence's, as the step sees it
  std::array<std::unique_ptr<kernels::Gate>, kGroupsMax> gates;  // layers that are there
  uint32_t position = 0;                                         // of its first token
  StopFlag over;
};

struct Load {
  enum class State : uint8_t {
    kAbsent,   // to be computed
    kPlanned,  // waits for its turn
    kMoving,
    kReady,
    kTaken,  // the sequence has it
  };
  struct Slot {  // one position of the path, with a page in each group that needs one there
    State state = State::kAbsent;
    DirectoryNode* node = nullptr;  // counted in its `transfers` while planned or moving
    std::array<std::shared_ptr<FillingPage>, kGroupsMax> pages;
    Tier from = Tier::kNvme;  // the slowest of its pages' tiers
    uint32_t moving = 0;      // pages that have not arrived yet
    bool failed = false;      // a page of it was not to be had
    PageCounts layers{};      // (group) of its page that are there, where the load goes by bands

    // Whether a transfer whose turn comes should begin.
    bool is_wanted() const { return state == State::kMoving && !failed; }
  };

  uint32_t begin = 0;      // pages of the path before slots[0]
  uint32_t taken_end = 0;  // the sequence has all before this position
  bool whole = false;      // with windows: all from the meeting point on, or nothing
  bool given_up = false;
  bool gentle = false;  // for nobody who waits: see Tiers::begin_prefetch()
  bool by_bands = false;
  uint32_t bands = 1;        // of a page, at most
  uint32_t rows_behind = 0;  // that the step under it would compute, if there is one
  bool in_vain = false;      // a step under it was: there is no second one
  StopFlag stop;             // of what it waits for, once it is given up
  std::vector<Slot> slots;
  std::array<uint32_t, kTiers> adopted{};    // pages taken, by the tier they came from
  std::array<uint64_t, kTiers> in_flight{};  // bytes, by the tier they come from
  // By bands: who of this load asks next for room in flight. One at a time, so that loads take
  // turns.
  Semaphore host_turn{1}, nvme_turn{1};
  // (group, layer): pages that do not have it yet; by bands.
  std::array<std::vector<uint32_t>, kGroupsMax> missing;
  std::shared_ptr<StepUnderLoad> under;  // the step that runs

  uint32_t end() const { return begin + static_cast<uint32_t>(slots.size()); }
  Slot& at(uint32_t position) { return slots[position - begin]; }
  const Slot& at(uint32_t position) const { return slots[position - begin]; }
  // Layers of the group that all pages have.
  uint32_t layers_there(uint32_t group) const {
    const std::vector<uint32_t>& of = missing[group];
    return static_cast<uint32_t>(
        std::find_if(of.begin(), of.end(), [](uint32_t pages) { return pages > 0; }) - of.begin());
  }
  uint32_t planned() const {
    return static_cast<uint32_t>(std::count_if(slots.begin(), slots.end(), [](const Slot& slot) {
      return slot.state == State::kPlanned;
    }));
  }
  // Positions that are still to come, by the tier they come from.
  std::array<uint32_t, kTiers> coming() const {
    std::array<uint32_t, kTiers> count{};
    for (const Slot& slot : slots) {
      if (slot.state != State::kPlanned && slot.state != State::kMoving) continue;
      const bool host = slot.node->pages[0].residency.in(Tier::kHost);
      ++count[static_cast<size_t>(host ? Tier::kHost : Tier::kNvme)];
    }
    return count;
  }
  // Device pages that are set aside for it, by group.
  PageCounts pages_held() const {
    PageCounts held{};
    for (const Slot& slot : slots) {
      for (uint32_t g = 0; g < kGroupsMax; ++g) held[g] += slot.pages[g] != nullptr;
    }
    return held;
  }
};

}  // namespace spillway::cache
