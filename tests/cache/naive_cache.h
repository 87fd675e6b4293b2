// What KvCache promises, written down as plainly as possible: a map from prefixes to what is cached
// of them, lists searched from the front, and pins counted anew whenever they are asked for. Slow
// and obvious; the model test compares the real cache with it after every command.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache_fixture.h"

namespace spillway::cache {

struct NaiveSequence {
  std::string tenant;
  std::vector<TokenId> tokens;
  uint32_t attached = 0;              // pages in the tree
  PageCounts first{};                 // first page held
  PageCounts table{};                 // pages in the table, reserved ones included
  std::vector<uint32_t> breakpoints;  // pages
};

class NaiveCache {
 public:
  static constexpr uint32_t kPage = TestCache::kPageTokens;

  explicit NaiveCache(const CacheShape& shape) : shape_(shape) {}

  // Where the policy is not LRU, the model does not foresee which page goes: it follows. `gone` are
  // keys of pages that have left the cache, oldest first, and `key_of` gives a path's key. Throws
  // std::logic_error for a page that may not go.
  using KeyOf = std::function<uint64_t(const std::string& tenant, const std::vector<TokenId>&)>;
  void follow(std::list<uint64_t>* gone, KeyOf key_of);

  uint32_t match_pages(const std::string& tenant, const std::vector<TokenId>& tokens) const;
  PageCounts unpinned(const std::string& tenant, const std::vector<TokenId>& tokens) const;

  using Handle = std::list<NaiveSequence>::iterator;
  Handle begin(const std::string& tenant, const std::vector<TokenId>& tokens, uint32_t cached_max);
  void keep_breakpoint(Handle sequence, uint32_t position);
  bool reserve(Handle sequence, uint32_t count);
  void commit(Handle sequence, const std::vector<TokenId>& tokens);
  bool fork(Handle sequence, Handle& twin);
  void release(Handle sequence, const std::string& session);
  void end_session(const std::string& session);
  bool pin_prefix(const std::string& name, const std::string& tenant,
                  const std::vector<TokenId>& tokens);
  uint64_t clear();

  uint32_t groups() const { return static_cast<uint32_t>(shape_.windows.size()); }
  uint32_t sealed(uint32_t group) const;
  uint32_t pinned(uint32_t group) const;
  uint32_t writable(uint32_t group) const;
  uint32_t available(uint32_t group) const;
  uint32_t sessions() const;
  uint32_t pinned_prefixes() const;
  uint32_t tenants() const;

 private:
  // A page of a path: the namespace and all tokens up to the page's end.
  using Path = std::pair<std::string, std::vector<TokenId>>;
  // The namespace of sequences when prefix caching is off starts like this.
  static constexpr char kTransient = '#';
  struct Cached {
    uint64_t used = 0;
    std::array<bool, kGroupsMax> present{}, keep{};
  };
  struct Session {
    Path end;
    bool has_window = false;
    bool pinned = false;  // a prefix that is to be kept
  };
  static constexpr uint32_t kEntries = kGroupsMax;  // paths as such, in place of a group
  struct Shares {
    std::map<std::string, uint64_t> active;  // tenant -> its last charge
    uint64_t charges = 0;
  };
  using Listed = std::pair<Path, uint32_t>;  // of a window group

  static Path prefix(const Path& path, uint32_t pages);
  static uint32_t pages_of(const Path& path) { return uint32_t(path.second.size() / kPage); }
  static bool covers(const Path& path, const Path& page);
  uint32_t first_visible(uint32_t group, uint32_t position) const;
  std::pair<uint32_t, uint32_t> match(const std::string& tenant, const std::vector<TokenId>& tokens,
                                      uint32_t cached_max = UINT32_MAX) const;
  uint32_t pins(const Path& page, uint32_t group) const;
  uint32_t soft_windows(const Path& page, uint32_t group) const;
  uint32_t children(const Path& page) const;
  bool ends_lease(const Path& page) const;
  bool may_go(const Path& page) const;
  void unlist(const Path& page, uint32_t group);
  void unpinned_page(const Path& page, uint32_t group);
  void drop_window(Session& session);
  void hold_window(const Session& session);
  void remove_leaf(const Path& page);
  void remove_useless();
  Hold hold(const Path& page) const;
  static std::string tenant_of(const Path& path);
  std::map<std::string, uint64_t> pages_by_tenant(uint32_t group) const;
  void charge(const Path& path, uint32_t group);
  bool is_over_share(const Path& path, uint32_t group) const;
  Path window_victim(uint32_t group) const;
  Path lru_victim() const;
  Path followed_victim() const;
  void evict_one(uint32_t group);
  bool make_room(const PageCounts& pages);
  void keep_window(const NaiveSequence& sequence, uint32_t boundary);
  uint32_t free(uint32_t group) const;

  CacheShape shape_;
  std::map<Path, Cached> cached_;
  std::list<NaiveSequence> sequences_;
  std::map<std::string, Session> sessions_;
  std::array<std::list<Listed>, 2> lists_;  // [session]; the first goes first
  uint64_t tick_ = 0;
  uint64_t transient_ = 0;
  std::array<Shares, kGroupsMax + 1> shares_;  // [group], [kEntries]
  std::list<uint64_t>* gone_ = nullptr;
  KeyOf key_of_;
};

}  // namespace spillway::cache
