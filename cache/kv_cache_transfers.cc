// Pages that leave the device by copy, and pages that come back without being computed.
#include <algorithm>
#include <utility>

#include "cache/kv_cache.h"
#include "runtime/check.h"

namespace spillway::cache {

std::optional<PinnedPath> KvCache::pin_path(const PromptKeys& keys, std::span<const TokenId> tokens,
                                            uint32_t pages_max, bool with_windows) {
  if (!options_.prefix_caching) return std::nullopt;
  const uint32_t most = std::min(static_cast<uint32_t>(keys.pages.size()), pages_max);
  const PrefixTree::Match found = tree_->match(keys, tokens, most);
  const PrefixTree::Point& point = with_windows ? found.usable : found.path;
  if (point.end == 0) return std::nullopt;
  PinnedPath path;
  path.lease = tree_->pin_for_copy(point, with_windows);
  for (uint32_t g = 0; g < pools_.size(); ++g) path.pages[g].resize(point.end, kNoPage);
  tree_->copy_tables(path.lease, path.pages);
  return path;
}

Namespace KvCache::namespace_of(std::string_view identity) const {
  return namespace_of_identity(identity, options_.secret);
}

bool KvCache::is_ours(std::string_view identity) const {
  return has_fingerprint(identity, options_.fingerprint);
}

PageKey KvCache::key_of(const Namespace& space, const PageKey& parent,
                        std::span<const TokenId> tokens) const {
  return page_key(options_.key_mode, space, parent, tokens);
}

PageId KvCache::begin_filling(uint32_t group, bool gently) {
  const bool takes_one = pools_[group].count(PageState::kFree) == 0;
  if (gently && takes_one && !tree_->next_is_unheld(group)) return kNoPage;
  PageCounts pages{};
  pages[group] = 1;
  if (!make_room(pages)) return kNoPage;
  return pools_[group].acquire(PageState::kFilling);
}

void KvCache::orphan_filling(uint32_t group, PageId page) {
  CHECK(pools_[group].state(page) == PageState::kFilling);
  pools_[group].move(page, PageState::kOrphaned);
}

void KvCache::free_filling(uint32_t group, PageId page) {
  const PageState state = pools_[group].state(page);
  CHECK(state == PageState::kFilling || state == PageState::kOrphaned);
  pools_[group].release(page);
}

bool KvCache::can_adopt(const Sequence& sequence) const {
  if (!sequence.open_tokens_.empty()) return false;
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    if (sequence.tables_[g].size() != sequence.attached()) return false;
  }
  return true;
}

void KvCache::adopt(Sequence& sequence, std::span<const TokenId> tokens,
                    std::vector<PageSet> pages) {
  CHECK(can_adopt(sequence));
  CHECK(tokens.size() == pages.size() * page_tokens());
  const uint32_t end = sequence.attached() + static_cast<uint32_t>(pages.size());
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    const uint32_t first = tree_->first_visible(g, end);
    if (first <= sequence.first_[g]) continue;
    const uint32_t stop = std::min(first, sequence.attached());
    tree_->give_back_before(sequence.lease_, g, first);
    for (uint32_t at = sequence.first_[g]; at < stop; ++at) sequence.tables_[g][at] = kNoPage;
    sequence.first_[g] = first;
  }
  bool shared = true;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto ours = tokens.subspan(i * page_tokens(), page_tokens());
    // Once a chain of equal keys is full the rest stays the sequence's own, as in commit().
    shared = shared && tree_->append(sequence.lease_, ours, pages[i]);
    if (!shared) keep_private(sequence, ours, pages[i]);
    for (uint32_t g = 0; g < pools_.size(); ++g) sequence.tables_[g].push_back(pages[i][g]);
    sequence.size_ += page_tokens();
    sequence.cached_tokens_ += page_tokens();
  }
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    sequence.visible_from_[g] = first_visible(g, sequence.size_);
  }
  std::vector<uint32_t>& breakpoints = sequence.breakpoints_;
  const bool keep = std::erase(breakpoints, sequence.attached()) > 0;
  std::erase_if(breakpoints, [&](uint32_t boundary) { return boundary < sequence.attached(); });
  if (keep) tree_->keep_window(sequence.lease_, sequence.attached());
}

void KvCache::reserve_filled(Sequence& sequence, const std::vector<PageSet>& pages) {
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    CHECK(uint64_t{sequence.tables_[g].size()} * page_tokens() == sequence.size_);
    for (const PageSet& page : pages) {
      pools_[g].move(page[g], PageState::kWritable);
      sequence.tables_[g].push_back(page[g]);
    }
  }
}

void KvCache::keep_private(Sequence& sequence, std::span<const TokenId> tokens,
                           const PageSet& pages) {
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    if (pages[g] != kNoPage) pools_[g].move(pages[g], PageState::kWritable);
  }
  sequence.open_tokens_.insert(sequence.open_tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace spillway::cache
