#include "cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace spillway::cache {
namespace {

uint32_t ceil_div(uint64_t value, uint64_t by) {
  return static_cast<uint32_t>((value + by - 1) / by);
}

}  // namespace

KvCache::KvCache(KvCacheOptions options, std::unique_ptr<EvictionPolicy> policy)
    : options_(std::move(options)), policy_(std::move(policy)) {
  CHECK(!options_.groups.empty());
  CHECK(options_.groups.size() <= kGroupsMax);
  CHECK(policy_ != nullptr);
  pools_.reserve(options_.groups.size());  // the tree points into it
  std::vector<TreeGroup> groups;
  for (const KvCacheGroup& group : options_.groups) {
    CHECK(group.layout.page_tokens == page_tokens());
    pools_.emplace_back(group.memory, group.layout.page_bytes(), group.capacity);
    groups.push_back({&pools_.back(), group.layout.window});
  }
  tree_ =
      std::make_unique<PrefixTree>(page_tokens(), std::move(groups), options_.key_mode, *policy_);
}

KvCache::~KvCache() {
  CHECK(sequences_.empty());
  sessions_.clear();
  statics_.clear();
  pinned_.clear();
}

uint32_t KvCache::page_tokens() const { return options_.groups.front().layout.page_tokens; }

PromptKeys KvCache::keys(std::string_view tenant, std::string_view cache_salt,
                         std::span<const TokenId> tokens) const {
  PromptKeys keys;
  keys.space = make_namespace({options_.fingerprint, tenant, cache_salt}, options_.secret);
  keys.tokens = static_cast<uint32_t>(tokens.size());
  keys.pages.reserve(tokens.size() / page_tokens());
  PageKey parent;
  for (size_t at = 0; at + page_tokens() <= tokens.size(); at += page_tokens()) {
    parent = page_key(options_.key_mode, keys.space, parent, tokens.subspan(at, page_tokens()));
    keys.pages.push_back(parent);
  }
  return keys;
}

// The last token is always left to compute, so that a full hit yields logits (case K13).
PrefixTree::Match KvCache::match(const PromptKeys& keys, std::span<const TokenId> tokens,
                                 uint32_t cached_max) const {
  CHECK(!tokens.empty());
  CHECK(keys.tokens == tokens.size());
  if (!options_.prefix_caching) return {};
  const uint32_t most = std::min(static_cast<uint32_t>(tokens.size() - 1), cached_max);
  return tree_->match(keys, tokens, most / page_tokens());
}

uint32_t KvCache::match_length(const PromptKeys& keys, std::span<const TokenId> tokens) const {
  return match(keys, tokens).usable.end * page_tokens();
}

Peek KvCache::peek(const PromptKeys& keys, std::span<const TokenId> tokens) const {
  const PrefixTree::Match found = match(keys, tokens);
  Peek peek;
  peek.cached_tokens = found.usable.end * page_tokens();
  peek.unpinned = tree_->unpinned(found.usable);
  if (found.usable.end < keys.pages.size()) peek.next_page_key = keys.pages[found.usable.end].low;
  return peek;
}

std::optional<uint32_t> KvCache::first_divergence(const PromptKeys& keys,
                                                  std::span<const TokenId> tokens) const {
  if (!options_.prefix_caching) return std::nullopt;
  const auto pages = static_cast<uint32_t>(keys.pages.size());
  return tree_->divergence(tree_->match(keys, tokens, pages), keys.space, tokens);
}

uint64_t KvCache::version() const { return tree_->version(); }

// First page that a query at `position`, or after it, sees. 0 for full attention.
uint32_t KvCache::first_visible(uint32_t group, uint32_t position) const {
  const uint64_t window = options_.groups[group].layout.window;
  if (window == 0 || uint64_t{position} + 1 <= window) return 0;
  return static_cast<uint32_t>((uint64_t{position} + 1 - window) / page_tokens());
}

// A sequence of `size` tokens on the lease's path, with the tables of what the lease pins.
std::unique_ptr<Sequence> KvCache::start(Lease lease, uint32_t size) {
  std::unique_ptr<Sequence> sequence(new Sequence);
  sequence->lease_ = std::move(lease);
  sequence->size_ = size;
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    sequence->first_[g] = sequence->lease_.first(g);
    sequence->visible_from_[g] = first_visible(g, size);
    sequence->tables_[g].resize(sequence->attached(), kNoPage);
  }
  tree_->copy_tables(sequence->lease_, sequence->tables_);
  sequence->index_ = static_cast<uint32_t>(sequences_.size());
  sequences_.push_back(sequence.get());
  return sequence;
}

std::unique_ptr<Sequence> KvCache::begin(const PromptKeys& keys, std::span<const TokenId> tokens,
                                         uint32_t cached_max) {
  const PrefixTree::Match found = match(keys, tokens, cached_max);
  Lease lease =
      options_.prefix_caching ? tree_->pin(keys.space, found.usable) : tree_->pin_transient();
  std::unique_ptr<Sequence> sequence = start(std::move(lease), found.usable.end * page_tokens());
  sequence->cached_tokens_ = sequence->size_;
  // Window pages stay before the prompt's end, both for the prompt again (its last token is left to
  // compute) and for a longer one; and where the tree forks from what it held before.
  const uint32_t size = static_cast<uint32_t>(tokens.size());
  for (uint32_t boundary : {found.path_pages, (size - 1) / page_tokens(), size / page_tokens()}) {
    keep_breakpoint(*sequence, std::max(boundary * page_tokens(), sequence->size_));
  }
  return sequence;
}

void KvCache::keep_breakpoint(Sequence& sequence, uint32_t position) {
  CHECK(position >= sequence.size_);
  const uint32_t boundary = position / page_tokens();
  std::vector<uint32_t>& breakpoints = sequence.breakpoints_;
  const auto at = std::lower_bound(breakpoints.begin(), breakpoints.end(), boundary);
  if (boundary > sequence.attached() && (at == breakpoints.end() || *at != boundary)) {
    breakpoints.insert(at, boundary);
  }
}

PageCounts KvCache::pages_needed(const Sequence& sequence, uint32_t count) const {
  PageCounts pages{};
  const uint32_t end = ceil_div(uint64_t{sequence.size_} + count, page_tokens());
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    const uint32_t have = static_cast<uint32_t>(sequence.tables_[g].size());
    pages[g] = end - std::min(end, have);
  }
  return pages;
}

PageCounts KvCache::pages_available() const {
  PageCounts pages{};
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    pages[g] = pools_[g].count(PageState::kFree) + tree_->evictable(g);
  }
  return pages;
}

// Evicts until each group has that many free pages, or evicts nothing and returns false.
bool KvCache::make_room(const PageCounts& pages) {
  const PageCounts available = pages_available();
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    if (pages[g] > available[g]) return false;
  }
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    while (pools_[g].count(PageState::kFree) < pages[g]) CHECK(tree_->evict_one(g));
  }
  return true;
}

bool KvCache::reserve(Sequence& sequence, uint32_t count) {
  const PageCounts pages = pages_needed(sequence, count);
  if (!make_room(pages)) return false;
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    for (uint32_t i = 0; i < pages[g]; ++i) sequence.tables_[g].push_back(pools_[g].acquire());
  }
  return true;
}

void KvCache::commit(Sequence& sequence, std::span<const TokenId> tokens) {
  const uint64_t size = uint64_t{sequence.size_} + tokens.size();
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    CHECK(size <= uint64_t{sequence.tables_[g].size()} * page_tokens());  // reserved
  }
  sequence.open_tokens_.insert(sequence.open_tokens_.end(), tokens.begin(), tokens.end());
  sequence.size_ = static_cast<uint32_t>(size);
  share_full_pages(sequence);
  std::vector<uint32_t>& breakpoints = sequence.breakpoints_;
  auto passed = breakpoints.begin();
  for (; passed != breakpoints.end() && *passed <= sequence.attached(); ++passed) {
    tree_->keep_window(sequence.lease_, *passed);
  }
  breakpoints.erase(breakpoints.begin(), passed);
  give_back_behind_window(sequence);
}

void KvCache::share_full_pages(Sequence& sequence) {
  std::span<const TokenId> open = sequence.open_tokens_;
  while (open.size() >= page_tokens()) {
    const uint32_t position = sequence.attached();
    PageSet pages{kNoPage, kNoPage};
    for (uint32_t g = 0; g < pools_.size(); ++g) pages[g] = sequence.tables_[g][position];
    if (!tree_->append(sequence.lease_, open.first(page_tokens()), pages)) break;
    for (uint32_t g = 0; g < pools_.size(); ++g) sequence.tables_[g][position] = pages[g];
    open = open.subspan(page_tokens());
  }
  sequence.open_tokens_.erase(sequence.open_tokens_.begin(),
                              sequence.open_tokens_.end() - static_cast<ptrdiff_t>(open.size()));
}

// Gives back what the last page boundary no longer sees. The next query may see one page less than
// that boundary; it stays so that the sequence's end can be found again at the boundary.
void KvCache::give_back_behind_window(Sequence& sequence) {
  const uint32_t boundary = sequence.size_ / page_tokens() * page_tokens();
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    sequence.visible_from_[g] = first_visible(g, sequence.size_);
    const uint32_t first = first_visible(g, boundary);
    if (first <= sequence.first_[g]) continue;
    tree_->give_back_before(sequence.lease_, g, first);
    for (uint32_t position = sequence.first_[g]; position < first; ++position) {
      PageId& page = sequence.tables_[g][position];
      if (position >= sequence.attached()) pools_[g].release(page);
      page = kNoPage;
    }
    sequence.first_[g] = first;
  }
}

std::unique_ptr<Sequence> KvCache::fork(Sequence& sequence, const CopyPage& copy) {
  PageCounts pages{};
  const uint32_t end = ceil_div(sequence.size_, page_tokens());
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    pages[g] = end - std::max(sequence.attached(), sequence.first_[g]);
  }
  if (!make_room(pages)) return nullptr;
  std::unique_ptr<Sequence> twin = start(tree_->pin_again(sequence.lease_), sequence.size_);
  twin->cached_tokens_ = sequence.cached_tokens_;
  twin->open_tokens_ = sequence.open_tokens_;
  twin->breakpoints_ = sequence.breakpoints_;
  twin->first_ = sequence.first_;
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    for (uint32_t position = sequence.attached(); position < end; ++position) {
      const PageId from = sequence.tables_[g][position];
      twin->tables_[g].push_back(from == kNoPage ? kNoPage : pools_[g].acquire());
      if (from != kNoPage) copy(g, from, twin->tables_[g].back());
    }
  }
  return twin;
}

void KvCache::release(std::unique_ptr<Sequence> sequence, std::string_view session) {
  CHECK(sequence != nullptr);
  CHECK(sequence->index_ < sequences_.size());
  CHECK(sequences_[sequence->index_] == sequence.get());
  sequences_[sequence->index_] = sequences_.back();
  sequences_[sequence->index_]->index_ = sequence->index_;
  sequences_.pop_back();
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    const uint32_t from = std::max(sequence->attached(), sequence->first_[g]);
    for (size_t position = from; position < sequence->tables_[g].size(); ++position) {
      pools_[g].release(sequence->tables_[g][position]);
    }
  }
  if (sequence->attached() > 0) tree_->keep_window(sequence->lease_, sequence->attached());
  if (!session.empty()) hold_session(session, sequence->lease_);
  sequence->lease_.reset();
}

void KvCache::hold_session(std::string_view session, const Lease& path) {
  if (!options_.prefix_caching || path.end() == 0) return;
  std::string name(session);
  if (sessions_.size() >= options_.sessions_max && !sessions_.contains(name)) {
    std::erase_if(sessions_, [](const auto& held) { return held.second.empty(); });
    if (sessions_.size() >= options_.sessions_max) return;
  }
  sessions_[std::move(name)] = tree_->soften(path, LeaseKind::kSession);
}

void KvCache::end_session(std::string_view session) { sessions_.erase(std::string(session)); }

bool KvCache::pin_prefix(std::string_view name, const PromptKeys& keys,
                         std::span<const TokenId> tokens) {
  if (tokens.empty() || !options_.prefix_caching) return false;
  CHECK(keys.tokens == tokens.size());
  const uint32_t pages_max = static_cast<uint32_t>(tokens.size() / page_tokens());
  const PrefixTree::Point found = tree_->match(keys, tokens, pages_max).usable;
  if (found.end == 0) return false;
  std::erase_if(pinned_, [](const auto& pinned) { return pinned.second.empty(); });
  const std::string key(name);
  uint64_t pages = found.end;
  for (const auto& [other, lease] : pinned_) {
    if (other != key) pages += lease.end();
  }
  if (pages > pinned_pages_max()) return false;
  pinned_[key] = tree_->keep(found, LeaseKind::kKeep);
  return true;
}

uint32_t KvCache::pinned_pages_max() const {
  return static_cast<uint32_t>(options_.pinned_share_max * pools_.front().capacity());
}

uint32_t KvCache::pinned_pages(std::string_view name) const {
  const auto found = pinned_.find(std::string(name));
  return found == pinned_.end() || found->second.empty() ? 0 : found->second.end();
}

void KvCache::hold_static(std::string_view name, const PromptKeys& keys,
                          std::span<const TokenId> tokens) {
  if (tokens.empty() || !options_.prefix_caching) return;
  CHECK(keys.tokens == tokens.size());
  const auto pages_max = static_cast<uint32_t>(tokens.size() / page_tokens());
  const PrefixTree::Point found = tree_->match(keys, tokens, pages_max).usable;
  if (found.end > 0) statics_[std::string(name)] = tree_->keep(found, LeaseKind::kStatic);
}

void KvCache::drop_static(std::string_view name) { statics_.erase(std::string(name)); }

void KvCache::unpin_prefix(std::string_view name) { pinned_.erase(std::string(name)); }

uint64_t KvCache::clear() { return tree_->clear(); }

bool KvCache::drop_all() {
  CHECK(sequences_.empty());
  clear();
  return std::all_of(pools_.begin(), pools_.end(), [](const PagePool& pool) {
    return pool.count(PageState::kFree) + pool.count(PageState::kOrphaned) == pool.capacity();
  });
}

void KvCache::move_to(const std::vector<std::byte*>& memory) {
  CHECK(memory.size() == pools_.size());
  for (size_t g = 0; g < pools_.size(); ++g) pools_[g].move_to(memory[g]);
}

KvCacheStats KvCache::stats() const {
  KvCacheStats stats;
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    const PagePool& pool = pools_[g];
    GroupStats group;
    group.capacity = pool.capacity();
    group.free = pool.count(PageState::kFree);
    group.writable = pool.count(PageState::kWritable);
    group.sealed = pool.count(PageState::kSealed);
    group.filling = pool.count(PageState::kFilling);
    group.orphaned = pool.count(PageState::kOrphaned);
    group.pinned = pool.pinned();
    group.evicted = tree_->evicted_pages(g);
    group.page_bytes = pool.page_bytes();
    stats.groups.push_back(group);
  }
  stats.sequences = static_cast<uint32_t>(sequences_.size());
  stats.sessions = tree_->session_leases();
  for (const auto& [name, lease] : pinned_) {
    if (lease.empty()) continue;
    ++stats.pinned_prefixes;
    stats.pinned_prefix_pages += lease.end();
  }
  stats.tree_nodes = tree_->node_count();
  stats.tree_namespaces = tree_->space_count();
  stats.remapped_pages = tree_->remapped_pages();
  return stats;
}

void KvCache::check_counters() const {
  for (const PagePool& pool : pools_) pool.check_counters();
}

}  // namespace spillway::cache
