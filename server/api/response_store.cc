#include "server/api/response_store.h"

namespace spillway::server {

void ResponseStore::put(std::shared_ptr<const StoredResponse> response) {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(response->id);
  if (known != by_id_.end()) drop(known->second);
  bytes_ += response->bytes;
  order_.push_front(std::move(response));
  by_id_[order_.front()->id] = order_.begin();
  while (bytes_ > bytes_max_ && order_.size() > 1) drop(std::prev(order_.end()));
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id,
                                                          const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  if (known == by_id_.end() || (*known->second)->tenant != tenant) return nullptr;
  order_.splice(order_.begin(), order_, known->second);
  return order_.front();
}

void ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  if (known != by_id_.end()) drop(known->second);
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return order_.size();
}

// REQUIRES: mutex_ is held.
void ResponseStore::drop(Order::iterator entry) {
  bytes_ -= (*entry)->bytes;
  by_id_.erase((*entry)->id);
  order_.erase(entry);
}

}  // namespace spillway::server
