#include "naive_cache.h"

#include <algorithm>
#include <stdexcept>

namespace spillway::cache {
NaiveCache::Path NaiveCache::prefix(const Path& path, uint32_t pages) {
  return {path.first, {path.second.begin(), path.second.begin() + pages * kPage}};
}

bool NaiveCache::covers(const Path& path, const Path& page) {
  return path.first == page.first && path.second.size() >= page.second.size() &&
         std::equal(page.second.begin(), page.second.end(), path.second.begin());
}

// The page of the first token that a query at `position` sees.
uint32_t NaiveCache::first_visible(uint32_t group, uint32_t position) const {
  const uint32_t window = shape_.windows[group];
  if (window == 0) return 0;
  uint32_t token = position;
  while (token > 0 && position - (token - 1) < window) --token;
  return token / kPage;
}

// (usable pages, pages on the path)
std::pair<uint32_t, uint32_t> NaiveCache::match(const std::string& tenant,
                                                const std::vector<TokenId>& tokens,
                                                uint32_t cached_max) const {
  if (!shape_.prefix_caching) return {0, 0};
  const Path all{tenant, tokens};
  uint32_t path_pages = 0;
  while ((path_pages + 1) * kPage < tokens.size() && (path_pages + 1) * kPage <= cached_max &&
         cached_.contains(prefix(all, path_pages + 1))) {
    ++path_pages;
  }
  for (uint32_t usable = path_pages; usable > 0; --usable) {
    bool whole = true;
    for (uint32_t g = 0; g < groups(); ++g) {
      for (uint32_t p = first_visible(g, usable * kPage); p < usable; ++p) {
        whole = whole && cached_.at(prefix(all, p + 1)).present[g];
      }
    }
    if (whole) return {usable, path_pages};
  }
  return {0, path_pages};
}

uint32_t NaiveCache::match_pages(const std::string& tenant,
                                 const std::vector<TokenId>& tokens) const {
  return match(tenant, tokens).first;
}

PageCounts NaiveCache::unpinned(const std::string& tenant,
                                const std::vector<TokenId>& tokens) const {
  PageCounts counts{};
  const uint32_t usable = match(tenant, tokens).first;
  for (uint32_t g = 0; g < groups(); ++g) {
    for (uint32_t p = first_visible(g, usable * kPage); p < usable; ++p) {
      if (pins(prefix({tenant, tokens}, p + 1), g) == 0) ++counts[g];
    }
  }
  return counts;
}

uint32_t NaiveCache::pins(const Path& page, uint32_t group) const {
  const uint32_t position = pages_of(page) - 1;
  uint32_t count = 0;
  for (const NaiveSequence& sequence : sequences_) {
    if (position >= sequence.attached || position < sequence.first[group]) continue;
    if (covers({sequence.tenant, sequence.tokens}, page)) ++count;
  }
  return count;
}

uint32_t NaiveCache::soft_windows(const Path& page, uint32_t group) const {
  uint32_t count = 0;
  for (const auto& [name, session] : sessions_) {
    const uint32_t first = first_visible(group, static_cast<uint32_t>(session.end.second.size()));
    if (session.has_window && pages_of(page) > first && covers(session.end, page)) ++count;
  }
  return count;
}

uint32_t NaiveCache::children(const Path& page) const {
  uint32_t count = 0;
  for (const auto& [path, cached] : cached_) {
    if (path.second.size() == page.second.size() + kPage && covers(path, page)) ++count;
  }
  return count;
}

bool NaiveCache::ends_lease(const Path& page) const {
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const NaiveSequence& sequence) {
    return sequence.attached == pages_of(page) && covers({sequence.tenant, sequence.tokens}, page);
  });
}

bool NaiveCache::may_go(const Path& page) const { return children(page) == 0 && !ends_lease(page); }

void NaiveCache::unlist(const Path& page, uint32_t group) {
  for (auto& list : lists_) list.remove({page, group});
}

// Nobody may pin this window page any more: it is listed if something keeps it, else it goes.
void NaiveCache::unpinned_page(const Path& page, uint32_t group) {
  if (shape_.windows[group] == 0 || pins(page, group) > 0) return;
  Cached& cached = cached_.at(page);
  const bool session = soft_windows(page, group) > 0;
  if (cached.keep[group] || session) {
    lists_[session].push_back({page, group});
  } else {
    cached.present[group] = false;
  }
}

void NaiveCache::drop_window(Session& session) {
  if (!session.has_window) return;
  session.has_window = false;
  for (uint32_t g = 0; g < groups(); ++g) {
    if (shape_.windows[g] == 0) continue;
    const uint32_t end = pages_of(session.end);
    for (uint32_t p = end; p > first_visible(g, end * kPage); --p) {
      const Path page = prefix(session.end, p);
      const Listed listed{page, g};
      const auto at = std::find(lists_[1].begin(), lists_[1].end(), listed);
      if (at == lists_[1].end() || soft_windows(page, g) > 0) continue;
      lists_[1].erase(at);
      lists_[0].push_back(listed);
      cached_.at(page).keep[g] = true;
    }
  }
}

// Window pages that nobody pins become the session's.
void NaiveCache::hold_window(const Session& session) {
  const uint32_t end = pages_of(session.end);
  for (uint32_t g = 0; g < groups(); ++g) {
    if (shape_.windows[g] == 0) continue;
    for (uint32_t p = end; p > first_visible(g, end * kPage); --p) {
      const Listed listed{prefix(session.end, p), g};
      const auto at = std::find(lists_[0].begin(), lists_[0].end(), listed);
      if (at == lists_[0].end()) continue;
      lists_[1].splice(lists_[1].end(), lists_[0], at);
      cached_.at(listed.first).keep[g] = true;
    }
  }
}

void NaiveCache::remove_leaf(const Path& page) {
  for (auto& [name, session] : sessions_) {
    if (session.end != page) continue;
    drop_window(session);
    session.end = prefix(page, pages_of(page) - 1);
  }
  for (uint32_t g = 0; g < groups(); ++g) unlist(page, g);
  if (gone_ != nullptr && page.first.front() != kTransient) {
    const auto at = std::find(gone_->begin(), gone_->end(), key_of_(page.first, page.second));
    if (at == gone_->end()) throw std::logic_error("a page stays that should go");
    gone_->erase(at);
  }
  const Cached gone = cached_.at(page);
  cached_.erase(page);
  if (pages_of(page) == 1) return;
  Cached& parent = cached_.at(prefix(page, pages_of(page) - 1));
  parent.used = std::max(parent.used, gone.used);
}

// Leaves without any page, and paths that stay only while leased.
void NaiveCache::remove_useless() {
  for (bool again = true; again;) {
    again = false;
    for (const auto& [path, cached] : cached_) {
      const bool bare = std::none_of(cached.present.begin(), cached.present.end(),
                                     [](bool present) { return present; });
      if (!may_go(path) || !(bare || path.first.front() == kTransient)) continue;
      remove_leaf(Path(path));
      again = true;
      break;
    }
  }
}

uint32_t NaiveCache::sealed(uint32_t group) const {
  return static_cast<uint32_t>(
      std::count_if(cached_.begin(), cached_.end(),
                    [&](const auto& entry) { return entry.second.present[group]; }));
}

uint32_t NaiveCache::pinned(uint32_t group) const {
  return static_cast<uint32_t>(
      std::count_if(cached_.begin(), cached_.end(), [&](const auto& entry) {
        return entry.second.present[group] && pins(entry.first, group) > 0;
      }));
}

uint32_t NaiveCache::writable(uint32_t group) const {
  uint32_t pages = 0;
  for (const NaiveSequence& sequence : sequences_) {
    pages += sequence.table[group] - std::max(sequence.attached, sequence.first[group]);
  }
  return pages;
}

uint32_t NaiveCache::free(uint32_t group) const {
  return shape_.capacity[group] - sealed(group) - writable(group);
}

uint32_t NaiveCache::available(uint32_t group) const {
  return free(group) + sealed(group) - pinned(group);
}

uint32_t NaiveCache::sessions() const {
  return static_cast<uint32_t>(std::count_if(
      sessions_.begin(), sessions_.end(),
      [](const auto& held) { return !held.second.pinned && !held.second.end.second.empty(); }));
}

uint32_t NaiveCache::pinned_prefixes() const {
  return static_cast<uint32_t>(std::count_if(
      sessions_.begin(), sessions_.end(),
      [](const auto& held) { return held.second.pinned && !held.second.end.second.empty(); }));
}

uint32_t NaiveCache::tenants() const {
  std::map<std::string, bool> names;
  for (const auto& [path, cached] : cached_) names[path.first] = true;
  for (const NaiveSequence& sequence : sequences_) names[sequence.tenant] = true;
  return static_cast<uint32_t>(names.size());
}

bool NaiveCache::make_room(const PageCounts& pages) {
  for (uint32_t g = 0; g < groups(); ++g) {
    if (pages[g] > available(g)) return false;
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    while (free(g) < pages[g]) evict_one(g);
  }
  return true;
}

NaiveCache::Handle NaiveCache::begin(const std::string& tenant, const std::vector<TokenId>& tokens,
                                     uint32_t cached_max) {
  const auto [usable, path_pages] = match(tenant, tokens, cached_max);
  NaiveSequence sequence;
  sequence.tenant = shape_.prefix_caching ? tenant : kTransient + std::to_string(transient_++);
  sequence.tokens.assign(tokens.begin(), tokens.begin() + usable * kPage);
  sequence.attached = usable;
  const Handle handle = sequences_.insert(sequences_.end(), sequence);
  for (uint32_t g = 0; g < groups(); ++g) {
    handle->first[g] = first_visible(g, usable * kPage);
    handle->table[g] = usable;
    for (uint32_t p = handle->first[g]; p < usable; ++p) {
      unlist(prefix({handle->tenant, handle->tokens}, p + 1), g);
    }
  }
  const uint32_t size = static_cast<uint32_t>(tokens.size());
  for (uint32_t boundary : {path_pages, (size - 1) / kPage, size / kPage}) {
    if (boundary > usable) handle->breakpoints.push_back(boundary);
  }
  return handle;
}

void NaiveCache::keep_breakpoint(Handle sequence, uint32_t position) {
  if (position / kPage > sequence->attached) {
    sequence->breakpoints.push_back(position / kPage);
  }
}

bool NaiveCache::reserve(Handle sequence, uint32_t count) {
  PageCounts pages{};
  const uint32_t end = (static_cast<uint32_t>(sequence->tokens.size()) + count + kPage - 1) / kPage;
  for (uint32_t g = 0; g < groups(); ++g) {
    pages[g] = end > sequence->table[g] ? end - sequence->table[g] : 0;
  }
  if (!make_room(pages)) return false;
  for (uint32_t g = 0; g < groups(); ++g) sequence->table[g] += pages[g];
  return true;
}

void NaiveCache::keep_window(const NaiveSequence& sequence, uint32_t boundary) {
  if (sequence.tenant.front() == kTransient) return;
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t first = first_visible(g, boundary * kPage);
    if (shape_.windows[g] == 0 || first < sequence.first[g]) continue;
    for (uint32_t p = first; p < boundary; ++p) {
      cached_.at(prefix({sequence.tenant, sequence.tokens}, p + 1)).keep[g] = true;
    }
  }
}

void NaiveCache::commit(Handle sequence, const std::vector<TokenId>& tokens) {
  sequence->tokens.insert(sequence->tokens.end(), tokens.begin(), tokens.end());
  const Path all{sequence->tenant, sequence->tokens};
  const uint32_t full = static_cast<uint32_t>(sequence->tokens.size()) / kPage;
  while (sequence->attached < full) {
    const uint32_t position = sequence->attached;
    const Path page = prefix(all, position + 1);
    if (!cached_.contains(page)) {
      if (shape_.key_mode == KeyMode::kConstant &&
          children(prefix(all, position)) >= PrefixTree::kChainMax) {
        break;
      }
      cached_[page].used = tick_;
      if (page.first.front() != kTransient) charge(page, kEntries);
    }
    for (uint32_t g = 0; g < groups(); ++g) {
      if (position < sequence->first[g]) continue;
      if (!cached_[page].present[g] && shape_.windows[g] > 0) {
        cached_[page].present[g] = true;
        charge(page, g);
      }
      cached_[page].present[g] = true;
      unlist(page, g);
    }
    ++sequence->attached;
  }
  std::erase_if(sequence->breakpoints, [&](uint32_t boundary) {
    if (boundary > sequence->attached) return false;
    keep_window(*sequence, boundary);
    return true;
  });
  for (uint32_t g = 0; g < groups(); ++g) {
    const uint32_t from = sequence->first[g];
    const uint32_t first = first_visible(g, full * kPage);
    if (first <= from) continue;
    sequence->first[g] = first;
    for (uint32_t p = std::min(first, sequence->attached); p > from; --p) {
      unpinned_page(prefix(all, p), g);
    }
  }
}

bool NaiveCache::fork(Handle sequence, Handle& twin) {
  PageCounts pages{};
  const uint32_t end = (static_cast<uint32_t>(sequence->tokens.size()) + kPage - 1) / kPage;
  for (uint32_t g = 0; g < groups(); ++g) {
    pages[g] = end - std::max(sequence->attached, sequence->first[g]);
  }
  if (!make_room(pages)) return false;
  twin = sequences_.insert(sequences_.end(), *sequence);
  for (uint32_t g = 0; g < groups(); ++g) twin->table[g] = end;
  return true;
}

void NaiveCache::release(Handle sequence, const std::string& session) {
  const uint32_t attached = sequence->attached;
  const Path path = prefix({sequence->tenant, sequence->tokens}, attached);
  if (attached > 0) keep_window(*sequence, attached);
  if (!session.empty() && shape_.prefix_caching && attached > 0) {
    Session former;
    if (sessions_.contains(session)) former = sessions_[session];
    sessions_[session] = {path, true, false};
    drop_window(former);
  }
  const PageCounts first = sequence->first;
  sequences_.erase(sequence);
  for (uint32_t g = 0; g < groups(); ++g) {
    for (uint32_t p = attached; p > first[g]; --p) unpinned_page(prefix(path, p), g);
  }
  if (attached > 0) ++tick_;
  for (uint32_t p = 1; p <= attached; ++p) cached_.at(prefix(path, p)).used = tick_;
  remove_useless();
}

void NaiveCache::end_session(const std::string& name) {
  if (!sessions_.contains(name)) return;
  Session session = sessions_[name];
  sessions_.erase(name);
  drop_window(session);
}

bool NaiveCache::pin_prefix(const std::string& name, const std::string& tenant,
                            const std::vector<TokenId>& tokens) {
  std::vector<TokenId> longer = tokens;  // a match leaves the last token out
  longer.push_back(0);
  const uint32_t usable = match(tenant, longer).first;
  uint64_t pages = usable;
  for (const auto& [other, session] : sessions_) {
    if (session.pinned && other != name) pages += pages_of(session.end);
  }
  if (usable == 0 || pages * 4 > shape_.capacity[0]) return false;
  Session former;
  if (sessions_.contains(name)) former = sessions_[name];
  sessions_[name] = {prefix({tenant, tokens}, usable), true, true};
  hold_window(sessions_[name]);
  drop_window(former);
  return true;
}

uint64_t NaiveCache::clear() {
  uint64_t pages = 0;
  for (uint32_t g = 0; g < groups(); ++g) {
    pages += sealed(g) - pinned(g);
    for (auto& [path, cached] : cached_) {
      if (shape_.windows[g] == 0 || pins(path, g) > 0) continue;
      unlist(path, g);
      cached.present[g] = cached.keep[g] = false;
    }
  }
  for (bool again = true; again;) {
    again = false;
    for (const auto& [path, cached] : cached_) {
      if (!may_go(path)) continue;
      remove_leaf(Path(path));
      again = true;
      break;
    }
  }
  return pages;
}

}  // namespace spillway::cache
