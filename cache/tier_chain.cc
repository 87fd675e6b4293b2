// Chains of pages on NVMe: what a page is found through after a restart, and what follows from it
// for what may be written, evicted or kept.
//
// A page whose way is whole is one to which stored pages lead from the first one on. Where a page
// in the middle is lost, what comes after it stays, for this process still finds it, and has its
// way again when the lost page is computed and written anew; until then nothing is written after
// it. Where nobody computes it, the rest goes page by page from its end, as whatever is used no
// more.
#include <chrono>

#include "cache/tiers.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

constexpr std::chrono::milliseconds kReadPause(5);  // between looks at a page that is being read

bool is_on_its_way(const Residency& residency) {
  return residency.move() == Move::kDeviceToNvme || residency.move() == Move::kHostToNvme;
}

}  // namespace

// Whether all that the page is found through is stored or is being written. What was found is
// remembered in the nodes until a page in the middle of some chain is lost, so that a path is
// walked once: about 50 ns a page.
bool Tiers::way_is_whole(DirectoryNode& of, uint32_t group) {
  if (!is_chained()) return true;
  std::vector<DirectoryNode*> stored;
  for (DirectoryNode* node = group > 0 ? &of : of.parent; node->uid != 0; node = node->parent) {
    const Residency& residency = node->pages[0].residency;
    if (residency.in(Tier::kNvme)) {
      if (node->whole_since == losses_) break;
      stored.push_back(node);
    } else if (is_on_its_way(residency)) {
      stored.clear();  // it may still fail: what comes after it is looked at again
    } else {
      return false;
    }
  }
  for (DirectoryNode* known : stored) known->whole_since = losses_;
  return true;
}

bool Tiers::may_evict_from_nvme(const DirectoryNode& node, uint32_t group) const {
  if (node.on_written_path || !node.pages[group].residency.may_drop(Tier::kNvme)) return false;
  if (group > 0 || !is_chained()) return true;
  if (node.stored_children > 0) return false;
  // Windows' pages go with it, so none may be read just now.
  for (uint32_t g = 1; g < parts_.cache.groups(); ++g) {
    const Residency& window = node.pages[g].residency;
    if (window.in(Tier::kNvme) && !window.may_drop(Tier::kNvme)) return false;
  }
  return true;
}

void Tiers::entered_nvme(DirectoryNode& node, uint32_t group) {
  admit(node.pages[group].nvme, Tier::kNvme);
  list_idle(node, group);
  if (group > 0 || !is_chained() || node.parent->uid == 0) return;
  ++node.parent->stored_children;
  unlist(node.parent->pages[0].nvme, Tier::kNvme);
}

void Tiers::left_nvme(DirectoryNode& node, uint32_t group) {
  if (group > 0 || !is_chained()) return;
  node.whole_since = 0;
  if (node.stored_children > 0) ++losses_;
  if (node.parent->uid == 0) return;
  CHECK(node.parent->stored_children > 0);
  if (--node.parent->stored_children == 0) list_idle(*node.parent, 0);
}

// Whether stored pages wait for this one to be written again.
bool Tiers::is_missed(const DirectoryNode& node, uint32_t group) const {
  if (group > 0 || !is_chained()) return false;
  if (node.stored_children > 0) return true;
  for (uint32_t g = 1; g < parts_.cache.groups(); ++g) {
    if (node.pages[g].residency.in(Tier::kNvme)) return true;
  }
  return false;
}

// Some of a batch could not be written, or something before it was lost meanwhile: what comes after
// that would be found by nobody after a restart, and would take room.
Task<> Tiers::drop_unreachable(const std::vector<Copy>& written) {
  for (const Copy& copy : written) {
    const Residency& residency = copy.node->pages[copy.group].residency;
    while (residency.in(Tier::kNvme) && !way_is_whole(*copy.node, copy.group)) {
      if (residency.may_drop(Tier::kNvme)) {
        drop_nvme(*copy.node, copy.group, true);
        ++nvme_.skipped;
        break;
      }
      const Result<> slept = co_await parts_.loop.sleep_for(kReadPause, scope_.stop());
      if (!slept) break;  // the next process erases it
    }
  }
}

}  // namespace spillway::cache
