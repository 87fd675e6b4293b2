// What goes next in the naive model: searched for, among all that may go.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "naive_cache.h"

namespace spillway::cache {

Hold NaiveCache::hold(const Path& page) const {
  Hold hold = Hold::kNone;
  for (const auto& [name, session] : sessions_) {
    if (session.end == page) hold = std::max(hold, session.pinned ? Hold::kPinned : Hold::kSession);
  }
  return hold;
}

std::string NaiveCache::tenant_of(const Path& path) {
  return path.first.front() == kTransient ? "" : path.first;
}

// Pages by tenant: in a window group's pool, or (kEntries) of paths as such.
std::map<std::string, uint64_t> NaiveCache::pages_by_tenant(uint32_t group) const {
  std::map<std::string, uint64_t> pages;
  for (const auto& [path, cached] : cached_) {
    const bool counts =
        group == kEntries ? path.first.front() != kTransient : cached.present[group];
    if (counts) ++pages[tenant_of(path)];
  }
  return pages;
}

// A page is stored for the path's tenant: it is active. Tenants for which nothing was stored while
// the cache was filled 16 times (window pages: 256) are active no more.
void NaiveCache::charge(const Path& path, uint32_t group) {
  Shares& shares = shares_[group];
  shares.active[tenant_of(path)] = ++shares.charges;
  uint64_t pages = 0;
  for (const auto& [tenant, count] : pages_by_tenant(group)) pages += count;
  const uint64_t turnovers = group == kEntries ? 16 : 256;
  std::erase_if(shares.active, [&](const auto& entry) {
    return entry.second + turnovers * pages < shares.charges;
  });
}

bool NaiveCache::is_over_share(const Path& path, uint32_t group) const {
  const std::map<std::string, uint64_t> by_tenant = pages_by_tenant(group);
  const auto& active = shares_[group].active;
  uint64_t tenants = 0, pages = 0;
  for (const auto& [tenant, count] : by_tenant) {
    pages += count;
    tenants += active.contains(tenant);
  }
  const std::string tenant = tenant_of(path);
  return !active.contains(tenant) || by_tenant.at(tenant) * tenants > pages;
}

NaiveCache::Path NaiveCache::lru_victim() const {
  using Order = std::tuple<bool, Hold, uint64_t>;  // (within its share, hold, last use)
  std::optional<Order> best;
  const Path* victim = nullptr;
  for (const auto& [path, cached] : cached_) {
    if (!may_go(path)) continue;
    const Order order{!is_over_share(path, kEntries), hold(path), cached.used};
    if (!best || order < *best) best = order, victim = &path;
  }
  return *victim;
}

void NaiveCache::follow(std::list<uint64_t>* gone, KeyOf key_of) {
  gone_ = gone;
  key_of_ = std::move(key_of);
}

NaiveCache::Path NaiveCache::followed_victim() const {
  if (gone_->empty()) throw std::logic_error("no page went where one had to");
  for (const auto& [path, cached] : cached_) {
    if (path.first.front() == kTransient) continue;
    if (key_of_(path.first, path.second) != gone_->front()) continue;
    if (!may_go(path)) throw std::logic_error("a page went that is pinned or has children");
    bool other_over = false;
    for (const auto& [other, page] : cached_) {
      other_over = other_over || (may_go(other) && is_over_share(other, kEntries));
    }
    if (other_over && !is_over_share(path, kEntries)) {
      throw std::logic_error("a tenant within its share lost a page");
    }
    return path;
  }
  throw std::logic_error("a page went that was not there");
}

// The first listed of a tenant over its share; of all, if there is none. Sessions' pages after.
NaiveCache::Path NaiveCache::window_victim(uint32_t group) const {
  for (bool over : {true, false}) {
    for (const auto& list : lists_) {
      for (const auto& [path, listed_group] : list) {
        if (listed_group == group && (!over || is_over_share(path, group))) return path;
      }
    }
  }
  throw std::logic_error("no window page is listed");
}

void NaiveCache::evict_one(uint32_t group) {
  if (shape_.windows[group] > 0) {
    const Path page = window_victim(group);
    unlist(page, group);
    cached_.at(page).present[group] = cached_.at(page).keep[group] = false;
  } else {
    remove_leaf(gone_ == nullptr ? lru_victim() : followed_victim());
  }
  remove_useless();
}

}  // namespace spillway::cache
