// Scrubbing: while nobody wants anything of the engine and the disk is well, pages are read from
// NVMe and verified, one after the other, each after a pause. What does not verify is gone from the
// store and the directory then, so that no later prompt counts on it.
//
// It is in nobody's way: work that begins finds one read in flight at most, which holds no page and
// no buffer of the tiers. It reads whatever the store holds, pages of other models included, but
// for those that a load has verified in this round, and takes at most a tenth of the disk's time.
// Sketch, a page of 360 KiB a second (the default of the program): 360 KiB/s, 100,000 pages in 28
// hours; each page costs a timer and a read with its checksum: 35 us of this thread where workers
// take the checksum, 74 where they do not.
#include <algorithm>
#include <chrono>
#include <optional>

#include "cache/tiers.h"
#include "runtime/log.h"

namespace spillway::cache {
namespace {

constexpr int kPausesOfRead = 9;  // a pause lasts as long as so many reads, at least

}  // namespace

bool Tiers::may_scrub() const {
  const bool at_work = !is_idle_() || !loads_.empty() || !queue_.empty() || writing_;
  return !at_work && !read_breaker_.open() && !write_breaker_.open();
}

Task<> Tiers::scrub() {
  Clock::Duration pause = options_.scrub_pause;
  uint64_t pages_before = 0, lost_before = 0;  // this round
  for (;;) {
    const Result<> slept = co_await parts_.loop.sleep_for(pause, scope_.stop());
    if (!slept) break;
    pause = options_.scrub_pause;
    if (!may_scrub()) continue;
    const Clock::TimePoint began = parts_.loop.clock().now();
    const std::optional<io::ScrubbedPage> page = co_await parts_.store->scrub_one(scope_.stop());
    if (page) {
      pause = std::max(pause, (parts_.loop.clock().now() - began) * kPausesOfRead);
      const bool none_lost = scrub_dropped_pages_ == lost_before;
      take_scrubbed(*page);
      if (none_lost && scrub_dropped_pages_ > lost_before) {  // the others are told of at the end
        spdlog::warn("nvme_scrub dropped_slot={} error=\"{}\"", static_cast<uint32_t>(page->slot),
                     page->read.error().message);
      }
      continue;
    }
    pause = options_.scrub_rest;
    if (scrub_dropped_pages_ > lost_before) {
      spdlog::info("nvme_scrub round=over pages={} dropped={}", scrubbed_pages_ - pages_before,
                   scrub_dropped_pages_ - lost_before);
    }
    pages_before = scrubbed_pages_;
    lost_before = scrub_dropped_pages_;
  }
}

void Tiers::take_scrubbed(const io::ScrubbedPage& page) {
  bool is_corrupt = false;
  if (!page.read) {
    const ErrorCode code = page.read.error().code;
    // It was called off, or the page was evicted meanwhile.
    if (code == ErrorCode::kCancelled || code == ErrorCode::kNotFound) return;
    is_corrupt = code == ErrorCode::kCorrupt;
  }
  judge_read(page.read);
  scrubbed_pages_ += page.read || is_corrupt ? 1 : 0;
  scrub_dropped_pages_ += is_corrupt ? 1 : 0;
  if (page.lost) forget_lost(page);
  progress();
}

// What the store has lost goes from the directory too: at once, or when nobody reads it any more.
void Tiers::forget_lost(const io::ScrubbedPage& page) {
  const auto is_it = [&page](const auto& one) {
    return one.slot == page.slot && one.generation == page.generation;
  };
  std::erase_if(others_, is_it);
  DirectoryNode* node = directory_.with_uid(page.uid);
  if (node == nullptr || page.group >= parts_.cache.groups()) return;
  LowerPage& lower = node->pages[page.group];
  if (!lower.residency.in(Tier::kNvme) || !is_it(lower)) return;
  if (!lower.residency.may_drop(Tier::kNvme)) {
    lower.nvme_cleared = true;
    return;
  }
  drop_nvme(*node, page.group, false);
  directory_.settle(node);
}

}  // namespace spillway::cache
