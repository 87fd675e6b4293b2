// What must hold after a command, between two events, and when nothing is under way.
#include <algorithm>

#include "io/operations.h"
#include "tiers_driver.h"

namespace spillway::cache {
namespace {

constexpr uint32_t kPage = TestCache::kPageTokens;

void require_empty(const std::string& problem) { require(problem.empty(), problem.c_str()); }

// A prompt that goes on after the path.
std::vector<TokenId> one_more(const std::vector<TokenId>& path) {
  return joined(path, std::vector<TokenId>{0});
}

// The pages of the device that lie where transfers read or write.
class DevicePages {
 public:
  explicit DevicePages(const KvCache& cache) : cache_(cache) {
    for (const GroupStats& group : cache.stats().groups) capacity_.push_back(group.capacity);
  }
  // say(group, page), if it is one.
  template <class Say>
  void look(const std::byte* at, Say say) const {
    for (uint32_t g = 0; g < capacity_.size(); ++g) {
      const std::byte* first = cache_.page_data(g, PageId{0});
      const size_t bytes = cache_.page_bytes(g);
      if (at < first || at >= first + capacity_[g] * bytes) continue;
      say(g, PageId{static_cast<uint32_t>(static_cast<size_t>(at - first) / bytes)});
    }
  }

 private:
  const KvCache& cache_;
  std::vector<uint32_t> capacity_;
};

}  // namespace

// What goes down stays where it is, whole, until it is copied (cases K1, K3); what comes up goes to
// pages that are nobody's, each of one operation alone (case K4); and no buffer is filled again
// while the disk takes from it, no host page while it is read (cases K5, K6).
void TiersDriver::watch() const {
  const DevicePages pages(cache());
  for (const sim::SimStream::Copy& copy : machine_.device().copies_out()) {
    pages.look(copy.from, [&](uint32_t g, PageId page) {
      require(cache().page_state(g, page) == PageState::kSealed,
              "K3: a page that is copied is open");
      require(cache().page_pins(g, page) > 0, "K1: a page that is copied is not pinned");
    });
  }
  std::set<const std::byte*> filled, read;
  const auto fills = [&](const std::byte* to) {
    require(filled.insert(to).second, "K4: two transfers fill one page");
    pages.look(to, [&](uint32_t g, PageId page) {
      const PageState state = cache().page_state(g, page);
      require(state == PageState::kFilling || state == PageState::kOrphaned,
              "K4: a transfer fills a page that is used");
    });
  };
  for (const sim::SimStream::Copy& copy : machine_.device().copies_out()) fills(copy.to);
  for (const sim::SimStream::Copy& copy : machine_.device().copies_in()) {
    fills(copy.to);
    read.insert(copy.from);
  }
  if (machine_.disk() != nullptr) {
    for (const auto memory : machine_.disk()->memory_of(io::Operation::Kind::kRead)) {
      fills(memory.data());
    }
    for (const auto memory : machine_.disk()->memory_of(io::Operation::Kind::kWrite)) {
      read.insert(memory.data());
    }
  }
  for (const std::byte* from : read) {
    require(!filled.contains(from), "K5: what a transfer reads is filled again");
  }
}

// Pages from the front that lower tiers may have: of paths that were kept there.
uint32_t TiersDriver::known_pages(const std::string& tenant,
                                  const std::vector<TokenId>& tokens) const {
  size_t most = 0;
  for (const auto* known : {&kept_, &erased_}) {
    const auto paths = known->find({fingerprint_, tenant});
    if (paths == known->end() || (known == &erased_ && !clearing_)) continue;
    for (const Path& path : paths->second) {
      const auto length = static_cast<ptrdiff_t>(std::min(path.size(), tokens.size()));
      const auto [end, other] = std::mismatch(path.begin(), path.begin() + length, tokens.begin());
      most = std::max(most, static_cast<size_t>(end - path.begin()) / kPage);
    }
  }
  return static_cast<uint32_t>(most);
}

void TiersDriver::check_match(const std::string& tenant, const std::vector<TokenId>& tokens) const {
  if (tokens.empty()) return;
  const PromptKeys keys = machine_.cache().keys(tokens, tenant);
  const uint32_t device = cache().match_length(keys, tokens);
  const uint32_t found = tiers().match_length(keys, tokens, device);
  require(found >= device && found % kPage == 0, "K14: a match that ends within a page");
  require(found < tokens.size(), "K13: a match that leaves nothing to compute");
  require(found == device || found / kPage <= known_pages(tenant, tokens),
          "K18: a match of what was never kept");
}

// Pages that were evicted anywhere, left out, or failed, since this process began.
uint64_t TiersDriver::lost_pages() const {
  const TiersStats stats = tiers().stats();
  uint64_t lost = stats.paths_dropped;
  for (const TierStats* tier : {&stats.host, &stats.nvme}) {
    lost += tier->evictions + tier->skipped + tier->errors;
  }
  for (const GroupStats& group : cache().stats().groups) lost += group.evicted;
  return lost;
}

bool TiersDriver::has_windows() const {
  return std::any_of(shape_.cache.windows.begin(), shape_.cache.windows.end(),
                     [](uint32_t window) { return window > 0; });
}

// Where nothing has been lost the path that was kept last is found whole. (A sequence that goes on
// may leave windows' pages behind before they are written.)
void TiersDriver::check_kept_path() {
  const bool foreseen = shape_.write == WritePolicy::kAuto && !faulty_ && is_quiet() &&
                        shape_.cache.key_mode == KeyMode::kHash;
  if (!foreseen || (has_windows() && kept_running_) || kept_path_.empty()) return;
  if (lost_pages() != lost_before_) return;
  const std::vector<TokenId> tokens = one_more(kept_path_);
  const PromptKeys keys = machine_.cache().keys(tokens, kept_tenant_);
  require(tiers().match_length(keys, tokens, 0) == kept_path_.size(), "a kept path is not there");
  ++checked_paths_;
}

// Each page of ours in the store is found through others: that before it, and a window's through
// that of its own place. So it is at opening, and as long as the disk does not lose any.
void TiersDriver::check_records() const {
  if (machine_.store() == nullptr || shape_.cache.windows[0] > 0) return;
  std::set<uint64_t> stored;
  machine_.store()->for_each([&](const io::StoredPage& page) {
    if (page.name.group == 0) stored.insert(page.name.uid);
  });
  machine_.store()->for_each([&](const io::StoredPage& page) {
    if (!cache().is_ours(page.name.space)) return;
    const uint64_t before = page.name.group > 0 ? page.name.uid : page.name.parent_uid;
    require(before == 0 || stored.contains(before), "a stored page that nobody finds");
  });
}

bool TiersDriver::is_quiet() const {
  if (machine_.workers().working > 0) return false;
  if (machine_.disk() != nullptr) {
    const io::RingStats disk = machine_.disk()->stats();
    if (disk.in_flight + disk.queued > 0) return false;
  }
  for (const auto& live : live_) {
    if (live->load == nullptr) continue;
    for (const Load::Slot& slot : live->load->slots) {
      if (slot.state == Load::State::kPlanned || slot.state == Load::State::kMoving) return false;
    }
  }
  return tiers().stats().paths_waiting == 0;
}

// Memory never lies, and a disk only where it was told to.
void TiersDriver::check_counts() const {
  const TiersStats stats = tiers().stats();
  require(stats.host.errors + stats.host.corrupt == 0, "a host page has other bytes");
  require(faulty_ || stats.nvme.errors + stats.nvme.corrupt == 0, "a stored page has other bytes");
}

PageCounts TiersDriver::held_by_loads() const {
  PageCounts held{};
  for (const auto& live : live_) {
    if (live->load == nullptr) continue;
    const PageCounts of = live->load->pages_held();
    for (size_t g = 0; g < held.size(); ++g) held[g] += of[g];
  }
  return held;
}

// With nothing in flight nothing is under way.
void TiersDriver::check_quiet() {
  if (!is_quiet()) return;
  const TiersStats stats = tiers().stats();
  if (stats.loads == 0) clearing_ = false;
  if (!faulty_) check_records();
  const uint64_t page_bytes = machine_.cache().page_bytes(0);
  if (shape_.host_codec == kernels::PageCodec::kIdentity) {
    require(stats.host.used_bytes == stats.host.pages * page_bytes, "host pages are under way");
  } else {
    require(stats.host.used_bytes <= stats.host.pages * page_bytes, "host pages are under way");
    require(stats.host.used_bytes % kernels::kPageAlignment == 0, "host memory: wrong count");
    require((stats.host.used_bytes == 0) == (stats.host.pages == 0), "host memory: wrong count");
  }
  const PageCounts held = held_by_loads();
  const KvCacheStats device = cache().stats();
  for (size_t g = 0; g < device.groups.size(); ++g) {
    require(device.groups[g].orphaned == 0, "K12: an orphaned page is left");
    require(device.groups[g].filling == held[g], "K12: a filling page belongs to no load");
  }
  if (machine_.store() == nullptr || faulty_) return;
  const io::BlockStoreStats store = machine_.store()->stats();
  require(store.pages == stats.nvme.pages + stats.other_pages, "the store holds other pages");
  const bool whole = shape_.nvme_codec == kernels::PageCodec::kIdentity;
  require(whole ? store.used_bytes == store.pages * page_bytes
                : store.used_bytes <= store.pages * page_bytes,
          "slots of the store are under way");
}

void TiersDriver::check_baseline() {
  check_quiet();
  const KvCacheStats device = cache().stats();
  for (const GroupStats& group : device.groups) {
    require(group.free == group.capacity, "idle is not as the baseline: pages leak");
  }
  require(device.tree_nodes == 0, "idle is not as the baseline: nodes leak");
  const TiersStats stats = tiers().stats();
  require(stats.host.used_bytes == 0, "idle is not as the baseline: host pages leak");
  require(stats.nvme.pages == 0, "idle is not as the baseline: stored pages leak");
  require(stats.directory_nodes == 0, "idle is not as the baseline: the directory leaks");
}

void TiersDriver::check_all() {
  std::vector<TestSequence*> sequences;
  for (auto& live : live_) sequences.push_back(&live->real);
  require_empty(machine_.cache().problem(sequences));
  cache().check_counters();
  require_empty(tiers().check_integrity());
  if (machine_.store() != nullptr) require_empty(machine_.store()->check_integrity());
  check_counts();
  const PageCounts held = held_by_loads();
  for (uint32_t g = 0; g < cache().groups(); ++g) {
    require(cache().stats().groups[g].filling <= held[g], "K12: a filling page belongs to no load");
  }
  for (const auto& [tenant, tokens] : ended_) check_match(tenant, tokens);
  for (const auto& live : live_) check_match(live->real.tenant, one_more(live->prompt));
}

}  // namespace spillway::cache
