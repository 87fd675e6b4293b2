#include "cache/tiers.h"

#include <xxhash.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/check.h"
#include "runtime/log.h"

namespace spillway::cache {
namespace {

uint64_t largest_page(const KvCache& cache) {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    bytes = std::max<uint64_t>(bytes, cache.page_bytes(g));
  }
  return bytes;
}

// No more than an eighth of the device's bytes is in flight from one tier, so that a disk that
// never answers cannot take them all; but a page of each group at least. By bands, a part of a page
// is in flight and all of it is in the way.
uint64_t load_room(const TiersOptions& options, const KvCache& cache) {
  uint64_t pool_bytes = 0, page_bytes = 0;
  for (const GroupStats& group : cache.stats().groups) {
    pool_bytes += group.capacity * group.page_bytes;
    page_bytes += group.page_bytes;
  }
  return std::max(std::min(options.load_bytes_max, pool_bytes / 8), page_bytes);
}

// The group's pages that are filled for the loads and for the steps under them.
std::set<PageId> filled_for(std::span<const std::shared_ptr<Load>> loads, uint32_t group,
                            const KvCache& cache) {
  std::set<PageId> pages;
  const auto add = [&](const auto& page) {
    if (page == nullptr || cache.page_state(group, page->id()) != PageState::kFilling) return;
    pages.insert(page->id());
  };
  for (const auto& load : loads) {
    for (const Load::Slot& slot : load->slots) add(slot.pages[group]);
    if (load->under == nullptr) continue;
    for (const auto& page : load->under->read) add(page[group]);
    for (const auto& page : load->under->written) add(page[group]);
  }
  return pages;
}

// No step runs under a load on a device that has no gates.
TiersOptions allowed_by(const kernels::Device& device, TiersOptions options) {
  if (!device.has_gates()) options.bands = BandLoads::kOff;
  return options;
}

}  // namespace

Tiers::Tiers(TiersOptions options, Parts parts, const MakePolicy& make_policy)
    : options_(allowed_by(parts.device, std::move(options))),
      parts_(parts),
      directory_(parts.cache.page_tokens()),
      host_room_(load_room(options_, parts.cache)),
      nvme_room_(load_room(options_, parts.cache)),
      queued_(1),
      host_rate_(options_.guess_bytes_per_s),
      nvme_rate_(options_.guess_bytes_per_s),
      scope_(parts.loop.executor()) {
  const uint32_t groups = parts_.cache.groups();
  CHECK(options_.host.empty() || options_.host.size() == groups);
  host_pools_.reserve(options_.host.size());
  for (uint32_t g = 0; g < groups; ++g) {
    const uint64_t stored_max =
        parts_.store == nullptr ? 1
                                : parts_.store->stats().capacity_bytes / parts_.cache.page_bytes(g);
    nvme_policies_.push_back(make_policy(static_cast<uint32_t>(std::max<uint64_t>(stored_max, 1))));
    host_policies_.push_back(make_policy(options_.host.empty() ? 1 : options_.host[g].capacity));
    if (options_.host.empty()) continue;
    const HostGroup& host = options_.host[g];
    const size_t page_bytes = parts_.cache.page_bytes(g);
    const bool encoded = options_.host_codec != kernels::PageCodec::kIdentity;
    const HostPool& pool =
        host_pools_.emplace_back(host.memory, page_bytes, host.capacity,
                                 encoded ? small_unit_bytes(page_bytes) : page_bytes);
    host_.capacity_bytes += pool.capacity_bytes();
  }
  make_transcoders();
  if (!parts_.device.host_reaches_memory() && (parts_.store != nullptr || host_is_encoded())) {
    landing_ = std::make_unique<PageTranscoder>(options_.landing, largest_page(parts_.cache),
                                                parts_.run_work);
  }
  if (host_is_encoded() || (parts_.store != nullptr && !has_host())) {
    staging_ = std::make_unique<Staging>(options_.staging, largest_page(parts_.cache));
    CHECK(staging_->free_slots() > 0);
  }
  list_stored();
  if (parts_.store != nullptr || has_host()) scope_.spawn(write_behind());
  if (parts_.store != nullptr && options_.scrub_pause.count() > 0) scope_.spawn(scrub());
}

Tiers::~Tiers() {
  CHECK(scope_.running() == 0);
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    while (EvictionCandidate* entry = host_policies_[g]->victim())
      host_policies_[g]->remove(*entry);
    while (EvictionCandidate* entry = nvme_policies_[g]->victim())
      nvme_policies_[g]->remove(*entry);
  }
}

void Tiers::make_transcoders() {
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    likely_bytes_.push_back(static_cast<uint32_t>(parts_.cache.page_bytes(g)));
  }
  const size_t page = largest_page(parts_.cache);
  if (has_host() && options_.host_codec != kernels::PageCodec::kIdentity) {
    host_encoder_ =
        std::make_unique<PageTranscoder>(options_.host_encode_buffers, page, parts_.run_work);
    host_decoder_ =
        std::make_unique<PageTranscoder>(options_.host_decode_buffers, page, parts_.run_work);
  }
  if (parts_.store == nullptr) return;
  if (options_.nvme_codec != kernels::PageCodec::kIdentity || host_is_encoded()) {
    encoder_ = std::make_unique<PageTranscoder>(options_.encode_buffers, page, parts_.run_work);
  }
  if (!options_.decode_buffers.empty()) {
    decoder_ = std::make_unique<PageTranscoder>(options_.decode_buffers, page, parts_.run_work);
  }
}

// Whether the page's bytes are those of a page of ours, or become so. A codec that loses something
// makes other answers, so its pages are for who asked for it.
bool Tiers::is_readable(const io::StoredPage& page) const {
  const uint64_t bytes = parts_.cache.page_bytes(page.name.group);
  const auto codec = kernels::page_codec_of(page.codec);
  if (!codec) return false;
  if (*codec == kernels::PageCodec::kIdentity) return page.stored_bytes == bytes;
  const bool same_bits = kernels::is_lossless(*codec) || *codec == options_.nvme_codec;
  return same_bits && decoder_ != nullptr && page.stored_bytes <= bytes;
}

// Builds the directory from the store's index: parents before children, by position. A page whose
// chain does not lead to it can never be found again, so it is erased. Every uid counts, also those
// that are erased here: a crash may bring such a record back, and then it must name nobody else.
// Pages of another fingerprint stay as they are.
void Tiers::list_stored() {
  if (parts_.store == nullptr) return;
  std::vector<io::StoredPage> stored;
  parts_.store->for_each([&](const io::StoredPage& page) { stored.push_back(page); });
  std::sort(stored.begin(), stored.end(), [](const io::StoredPage& a, const io::StoredPage& b) {
    return std::pair(a.name.position, a.name.group) < std::pair(b.name.position, b.name.group);
  });
  std::unordered_map<uint64_t, DirectoryNode*> by_uid;
  uint64_t lost = 0;
  for (const io::StoredPage& page : stored) {
    const io::PageName& name = page.name;
    if (!parts_.cache.is_ours(name.space)) {
      directory_.use_uid(std::max(name.uid, name.parent_uid));
      others_.push_back({page.slot, page.generation});
      continue;
    }
    DirectoryNode* parent = nullptr;
    const Namespace space = parts_.cache.namespace_of(name.space);
    const uint64_t uid = name.uid, parent_uid = name.parent_uid;
    if (parent_uid == 0) {
      parent = &directory_.root(space);
    } else if (const auto found = by_uid.find(parent_uid); found != by_uid.end()) {
      parent = found->second;
    }
    directory_.use_uid(std::max(uid, parent_uid));
    const PageKey key{name.key[0], name.key[1]};
    const bool fits = parent != nullptr && uid != 0 && name.group < parts_.cache.groups() &&
                      name.tokens.size() == parts_.cache.page_tokens() &&
                      name.position == (parent->uid == 0 ? 0 : parent->position + 1) &&
                      is_readable(page) &&
                      parts_.cache.key_of(space, parent->key, name.tokens) == key;
    DirectoryNode* node = nullptr;
    if (fits) {
      const auto known = by_uid.find(uid);
      node = known != by_uid.end() ? known->second : directory_.add(*parent, key, name.tokens, uid);
    }
    if (node == nullptr || node->uid != uid || node->parent != parent || node->key != key ||
        !std::equal(name.tokens.begin(), name.tokens.end(), node->tokens.begin()) ||
        node->pages[name.group].residency.in(Tier::kNvme) || !way_is_whole(*node, name.group)) {
      parts_.store->erase(page.slot, page.generation);
      if (parent != nullptr) directory_.settle(node != nullptr ? node : parent);
      ++lost;
      continue;
    }
    by_uid.emplace(uid, node);
    LowerPage& lower = node->pages[name.group];
    lower.residency.found_on_nvme();
    lower.slot = page.slot;
    lower.generation = page.generation;
    lower.codec = page.codec;
    lower.encoded_bytes = page.encoded_bytes;
    lower.stored_bytes = page.stored_bytes;
    lower.bands = page.bands;
    ++nvme_.pages;
    entered_nvme(*node, name.group);
  }
  std::sort(others_.begin(), others_.end(),
            [](const OtherPage& a, const OtherPage& b) { return a.slot < b.slot; });
  if (!others_.empty()) spdlog::info("nvme_pages_of_others kept={}", others_.size());
  if (lost > 0) spdlog::info("nvme_pages_unreachable erased={}", lost);
}

bool Tiers::evict_other() {
  if (others_.empty()) return false;
  parts_.store->erase(others_.back().slot, others_.back().generation);
  others_.pop_back();
  ++nvme_.evictions;
  return true;
}

// The page has come to the tier.
void Tiers::admit(TierEntry& entry, Tier tier) {
  if (std::exchange(entry.held, true)) return;
  const PageMemory known = policy(tier, entry.group).admit(entry.key, entry.tenant, tick_);
  entry.uses = std::max(known.uses + 1, entry.node->uses);
  entry.last_use = std::max(known.last_use, entry.node->last_use);
}

// It is a candidate of the tier now.
void Tiers::list(TierEntry& entry, Tier tier) {
  admit(entry, tier);
  if (std::exchange(entry.listed, true)) return;
  policy(tier, entry.group).add(entry);
}

void Tiers::unlist(TierEntry& entry, Tier tier) {
  if (!std::exchange(entry.listed, false)) return;
  policy(tier, entry.group).remove(entry);
}

void Tiers::leave(TierEntry& entry, Tier tier) {
  unlist(entry, tier);
  if (std::exchange(entry.held, false)) policy(tier, entry.group).gone(entry);
}

// A page that a transfer reads is not a candidate while it lasts.
void Tiers::begin_move(DirectoryNode& node, uint32_t group, Move move) {
  LowerPage& page = node.pages[group];
  page.residency.begin(move);
  ++node.transfers;
  const Tier from = kMoveEnds[static_cast<size_t>(move)].from;
  if (from == Tier::kHost) unlist(page.host, Tier::kHost);
  if (from == Tier::kNvme) unlist(page.nvme, Tier::kNvme);
  if (from == Tier::kNvme && is_chained()) unlist(node.pages[0].nvme, Tier::kNvme);
}

void Tiers::end_move(DirectoryNode& node, uint32_t group, bool arrived) {
  node.pages[group].residency.end(arrived);
  CHECK(node.transfers > 0);
  --node.transfers;
  list_idle(node, group);
  if (is_chained()) list_idle(node, 0);
}

// Pages that no transfer reads are candidates, on NVMe the last of each chain.
void Tiers::list_idle(DirectoryNode& node, uint32_t group) {
  LowerPage& page = node.pages[group];
  if (may_drop_host(node, group)) {
    if (page.host_cleared) {
      drop_host(node, group);
      ++host_.evictions;
    } else {
      list(page.host, Tier::kHost);
    }
  }
  if (may_evict_from_nvme(node, group)) list(page.nvme, Tier::kNvme);
}

void Tiers::drop_nvme(DirectoryNode& node, uint32_t group, bool erase) {
  LowerPage& page = node.pages[group];
  page.residency.drop(Tier::kNvme);
  leave(page.nvme, Tier::kNvme);
  page.nvme_cleared = false;
  if (erase) parts_.store->erase(page.slot, page.generation);
  --nvme_.pages;
  left_nvme(node, group);
}

bool Tiers::evict_one(Tier tier, uint32_t group) {
  EvictionCandidate* victim = policy(tier, group).victim();
  if (victim == nullptr) return false;
  DirectoryNode& node = *static_cast<TierEntry*>(victim)->node;
  if (parts_.loop.trace().on()) {
    parts_.loop.trace().add(
        {.name = tier == Tier::kHost ? "evicted from host" : "evicted from NVMe",
         .lane = TraceLane::kEngine,
         .moment = true,
         .end = parts_.loop.clock().now()});
  }
  if (tier == Tier::kHost) {
    drop_host(node, group);
    ++host_.evictions;
  } else {
    // A window's page is of no use without that of full attention.
    for (uint32_t g = is_chained() && group == 0 ? parts_.cache.groups() : group + 1; g > group;) {
      if (!node.pages[--g].residency.may_drop(Tier::kNvme)) continue;
      drop_nvme(node, g, true);
      ++nvme_.evictions;
    }
  }
  directory_.settle(&node);
  return true;
}

// A request went through the path: its first page last, so that of equals the deepest goes first.
void Tiers::touch(const std::vector<DirectoryNode*>& path, const KeptPath& kept) {
  tick_ += path.size();
  for (size_t i = 0; i < path.size(); ++i) {
    DirectoryNode& node = *path[i];
    node.last_use = tick_ - i;
    node.uses += kept.running ? 0 : 1;
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
        TierEntry& entry = tier == Tier::kHost ? node.pages[g].host : node.pages[g].nvme;
        if (!entry.held) continue;
        EvictionPolicy& of = policy(tier, g);
        if (!kept.running) of.found({entry.last_use, entry.uses++}, 1, tick_);
        of.used(entry.last_use, node.last_use, 1);
        entry.last_use = node.last_use;
        if (entry.listed) of.update(entry);
      }
    }
  }
}

void Tiers::progress() { on_progress_(); }

std::optional<double> Tiers::seconds_to_load(const PageCounts& pages) const {
  const bool nvme = parts_.store != nullptr && options_.write != WritePolicy::kOff &&
                    !read_breaker_.open() && !write_breaker_.open();
  if (!nvme && !has_host()) return std::nullopt;
  const Clock::TimePoint now = parts_.loop.clock().now();
  double bytes = 0;
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    bytes += static_cast<double>(pages[g] * parts_.cache.page_bytes(g));
  }
  return bytes / (nvme ? nvme_rate_ : host_rate_).bytes_per_s(now);
}

uint32_t Tiers::full_groups() const {
  uint32_t groups = 0;
  while (groups < parts_.cache.groups() && !parts_.cache.is_window(groups)) ++groups;
  return groups;
}

uint64_t Tiers::checksum_of(std::span<const std::byte> page) {
  return XXH3_64bits(page.data(), page.size());
}

uint64_t Tiers::clear() {
  ++clears_;
  queue_.clear();
  holds_.clear();
  seen_.clear();
  uint64_t pages = 0;
  std::vector<uint64_t> uids;
  directory_.for_each([&](const DirectoryNode& node) { uids.push_back(node.uid); });
  for (const uint64_t uid : uids) {
    DirectoryNode& node = *directory_.with_uid(uid);
    for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
      LowerPage& page = node.pages[g];
      if (may_drop_host(node, g)) {
        drop_host(node, g);
        ++host_.evictions;
        ++pages;
      } else {
        page.host_cleared = page.residency.in(Tier::kHost);
      }
      if (page.residency.may_drop(Tier::kNvme)) {
        drop_nvme(node, g, true);
        ++nvme_.evictions;
        ++pages;
      } else {
        page.nvme_cleared = page.residency.in(Tier::kNvme);
      }
    }
  }
  for (const uint64_t uid : uids) {
    if (DirectoryNode* node = directory_.with_uid(uid)) directory_.settle(node);
  }
  return pages;
}

void Tiers::device_lost() {
  queue_.clear();
  holds_.clear();
  for (const std::shared_ptr<Load>& load : std::exchange(loads_, {})) give_up(load);
}

Task<> Tiers::close() {
  device_lost();  // for nobody is there to want its pages
  scope_.cancel();
  co_await scope_.join();
}

TiersStats Tiers::stats() const {
  TiersStats stats;
  const Clock::TimePoint now = parts_.loop.clock().now();
  stats.host = host_;
  for (const HostPool& pool : host_pools_) stats.host.used_bytes += pool.used_bytes();
  stats.host.bytes_per_s = host_rate_.bytes_per_s(now);
  stats.host.measured = host_rate_.measured();
  stats.nvme = nvme_;
  stats.host_codec = host_codec_;
  stats.nvme_codec = codec_;
  stats.nvme.bytes_per_s = nvme_rate_.bytes_per_s(now);
  stats.nvme.measured = nvme_rate_.measured();
  stats.nvme.set_aside = read_breaker_.open();
  stats.nvme.writes_set_aside = write_breaker_.open();
  stats.nvme.times_set_aside = read_breaker_.openings() + write_breaker_.openings();
  if (parts_.store != nullptr) {
    stats.store = parts_.store->stats();
    stats.nvme.capacity_bytes = stats.store.capacity_bytes;
    stats.nvme.used_bytes = stats.store.used_bytes;
  }
  stats.directory_nodes = directory_.size();
  stats.other_pages = others_.size();
  stats.paths_waiting = queue_.size();
  stats.paths_dropped = paths_dropped_;
  stats.scrubbed_pages = scrubbed_pages_;
  stats.scrub_dropped_pages = scrub_dropped_pages_;
  stats.loads = static_cast<uint32_t>(loads_.size());
  stats.steps_under_load = steps_under_load_;
  stats.steps_in_vain = steps_in_vain_;
  stats.compute_seconds_per_token = compute_rate_.seconds_per_token(0);
  return stats;
}

std::string Tiers::check_integrity() const {
  if (std::string problem = directory_.check_integrity(); !problem.empty()) return problem;
  std::vector<size_t> host_units(host_pools_.size());
  uint64_t host = 0, nvme = 0;
  std::string problem;
  std::unordered_map<const DirectoryNode*, uint32_t> stored_children;
  directory_.for_each([&](const DirectoryNode& node) {
    if (is_chained() && node.pages[0].residency.in(Tier::kNvme)) ++stored_children[node.parent];
    for (uint32_t g = 0; g < kGroupsMax; ++g) {
      const LowerPage& page = node.pages[g];
      const bool in_host = page.residency.in(Tier::kHost);
      if (in_host == page.host_units.empty() && page.residency.move() != Move::kDeviceToHost) {
        problem = "a page's residency and its host page differ";
      }
      if (!page.host_units.empty()) host_units[g] += page.host_units.size();
      host += in_host;
      nvme += page.residency.in(Tier::kNvme);
      if (page.nvme.listed != may_evict_from_nvme(node, g)) {
        problem = "a candidate on NVMe must stay, or a page that may go is none";
      }
      if (page.host.listed != (in_host && may_drop_host(node, g))) {
        problem = "a host page that is read is a candidate, or one that may go is none";
      }
    }
  });
  directory_.for_each([&](const DirectoryNode& node) {
    const auto found = stored_children.find(&node);
    if (node.stored_children != (found == stored_children.end() ? 0 : found->second)) {
      problem = "a page counts those stored after it wrong";
    }
  });
  if (!problem.empty()) return problem;
  if (host != host_.pages || nvme != nvme_.pages) return "pages of a lower tier: wrong count";
  for (size_t g = 0; g < host_pools_.size(); ++g) {
    if (std::string found = host_pools_[g].check_integrity(); !found.empty()) return found;
    if (host_pools_[g].used_units() != host_units[g]) {
      return "memory of the host tier belongs to no page of the directory";
    }
  }
  // What nobody waits for any more is an orphan, so that nobody counts on it.
  const KvCacheStats device = parts_.cache.stats();
  for (uint32_t g = 0; g < parts_.cache.groups(); ++g) {
    if (filled_for(loads_, g, parts_.cache).size() != device.groups[g].filling) {
      return "a page is filled for no load";
    }
  }
  return {};
}

}  // namespace spillway::cache
