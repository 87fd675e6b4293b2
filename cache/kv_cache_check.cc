// The full walk over pools, tree and sequences that tests run after every call.
#include <algorithm>

#include "cache/kv_cache.h"

namespace spillway::cache {

std::string KvCache::check_integrity() const {
  std::vector<std::vector<bool>> written;  // [group][page]: some sequence writes it
  for (const PagePool& pool : pools_) {
    if (std::string problem = pool.check_integrity(); !problem.empty()) return problem;
    written.emplace_back(pool.capacity());
  }
  if (std::string problem = tree_->check_integrity(); !problem.empty()) return problem;
  for (uint32_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i]->index_ != i) return "a sequence has a wrong index";
    for (uint32_t g = 0; g < pools_.size(); ++g) {
      std::string problem = check_tables(*sequences_[i], g, written[g]);
      if (!problem.empty()) return problem;
    }
  }
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    const auto writable = std::count(written[g].begin(), written[g].end(), true);
    if (static_cast<uint32_t>(writable) != pools_[g].count(PageState::kWritable)) {
      return "a writable page belongs to no sequence";
    }
  }
  return {};
}

// One sequence's table of one group: what the lease pins, then pages that only it writes; none
// behind the window, and no more than the window, a page and what is reserved.
std::string KvCache::check_tables(const Sequence& sequence, uint32_t group,
                                  std::vector<bool>& written) const {
  const std::vector<PageId>& table = sequence.tables_[group];
  const uint32_t attached = sequence.attached();
  const uint32_t first = sequence.first_[group];
  if (sequence.lease_.empty()) return "a sequence has no lease";
  if (uint64_t{attached} * page_tokens() + sequence.open_tokens_.size() != sequence.size_) {
    return "a sequence's open tokens do not reach from its shared pages to its end";
  }
  if (uint64_t{table.size()} * page_tokens() < sequence.size_) return "a table is too short";
  if (first != sequence.lease_.first(group)) return "a sequence and its lease differ in the window";
  if (first != first_visible(group, sequence.size_ / page_tokens() * page_tokens())) {
    return "a sequence holds pages behind its window, or lacks some";
  }
  PrefixTree::Tables shared;
  shared[group].resize(attached, kNoPage);
  for (uint32_t g = 0; g < pools_.size(); ++g) shared[g].resize(attached, kNoPage);
  tree_->copy_tables(sequence.lease_, shared);
  for (uint32_t position = 0; position < table.size(); ++position) {
    const PageId page = table[position];
    if ((page == kNoPage) != (position < first)) return "a table has a hole, or no hole";
    if (page == kNoPage) continue;
    if (position < attached) {
      if (page != shared[group][position]) return "a table and the tree differ";
      if (pools_[group].state(page) != PageState::kSealed) return "a shared page is not sealed";
    } else {
      if (pools_[group].state(page) != PageState::kWritable) return "an open page is not writable";
      if (written[index_of(page)]) return "a page is written by two sequences";
      written[index_of(page)] = true;
    }
  }
  return {};
}

}  // namespace spillway::cache
