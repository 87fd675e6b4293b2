// Where open sessions left off: the tokens of each one's path, so that pages of it that left the
// device can come up again before its next request. Beyond kTokensMax tokens of all together the
// one that was idle longest is forgotten, which costs it nothing but the prefetch.
//
// Owner: the step loop. Engine thread. Nothing suspends.
#pragma once

#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/kv_cache.h"
#include "model/token.h"
#include "runtime/clock.h"

namespace spillway::scheduler {

struct SessionPath {
  std::string session;
  std::vector<model::TokenId> tokens;  // whole pages and one more, so that all pages count
  cache::PromptKeys keys;              // of them
};

class SessionPaths {
 public:
  static constexpr size_t kTokensMax = size_t{8} << 20;

  // In place of what the session had.
  void put(SessionPath path);
  const SessionPath* find(const std::string& session) const;  // null: not known (any more)
  void erase(const std::string& session);
  void clear();

 private:
  using Order = std::list<SessionPath>;  // idle longest first
  Order order_;
  std::unordered_map<std::string, Order::iterator> by_name_;
  size_t tokens_ = 0;
};

}  // namespace spillway::scheduler
