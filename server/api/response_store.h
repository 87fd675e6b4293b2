// Responses that may be continued by previous_response_id: each one's conversation as chat
// messages. Bounded; the least recently used go first. Any thread: entries are immutable, the map
// is locked for the moment of a look-up.
#pragma once

#include <boost/json/array.hpp>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace spillway::server {

struct StoredResponse {
  std::string id;
  std::string tenant;           // only its own key finds it
  std::string chain;            // of the conversation; "" if it has a connection
  boost::json::array messages;  // input and answer, without instructions
  size_t bytes = 0;             // roughly
};

class ResponseStore {
 public:
  explicit ResponseStore(size_t bytes_max) : bytes_max_(bytes_max) {}

  void put(std::shared_ptr<const StoredResponse> response);
  // Null: unknown, of another tenant, or given up for newer ones.
  std::shared_ptr<const StoredResponse> find(const std::string& id, const std::string& tenant);
  void erase(const std::string& id);
  size_t size() const;

 private:
  using Order = std::list<std::shared_ptr<const StoredResponse>>;  // most recently used first

  void drop(Order::iterator entry);

  const size_t bytes_max_;
  mutable std::mutex mutex_;
  Order order_;
  std::unordered_map<std::string, Order::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace spillway::server
