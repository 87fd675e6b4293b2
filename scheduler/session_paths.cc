#include "scheduler/session_paths.h"

#include <iterator>
#include <utility>

namespace spillway::scheduler {

void SessionPaths::put(SessionPath path) {
  erase(path.session);
  tokens_ += path.tokens.size();
  order_.push_back(std::move(path));
  by_name_[order_.back().session] = std::prev(order_.end());
  while (tokens_ > kTokensMax && order_.size() > 1) erase(std::string(order_.front().session));
}

const SessionPath* SessionPaths::find(const std::string& session) const {
  const auto found = by_name_.find(session);
  return found == by_name_.end() ? nullptr : &*found->second;
}

void SessionPaths::erase(const std::string& session) {
  const auto found = by_name_.find(session);
  if (found == by_name_.end()) return;
  tokens_ -= found->second->tokens.size();
  order_.erase(found->second);
  by_name_.erase(found);
}

void SessionPaths::clear() {
  order_.clear();
  by_name_.clear();
  tokens_ = 0;
}

}  // namespace spillway::scheduler
