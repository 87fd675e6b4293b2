// What clients want to be kept for a time: pinned prefixes, and the static parts of prompts. Says
// for how long and how many, on the engine's clock; the cache does the keeping.
//
// Pins of all tenants together cover at most pinned_pages_max() of the cache, those of one tenant
// an equal part of it: as many parts as there are tenants (case I2). A part that two pins share
// counts for each. A pin whose pages had to go all the same (a request would have failed, or
// another tenant lost its share) takes them back when they have been computed or loaded again. A
// reset of the cache ends everything here.
//
// Chains of stored responses are held as static parts are. Beyond kStaticsMax they take the place
// of the one that ends first, if possible of the same tenant.
//
// Owner: the step loop. Engine thread. Nothing suspends.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/kv_cache.h"
#include "runtime/engine_loop.h"
#include "scheduler/pins.h"
#include "scheduler/request.h"

namespace spillway::scheduler {

class HeldPrefixes final : private EngineLoop::Timer {
 public:
  static constexpr size_t kStaticsMax = 1024;           // chains included
  static constexpr std::chrono::minutes kChainTtl{10};  // since its last turn
  static constexpr size_t kPinsMax = 256;               // of a tenant

  // `wake` is called when something ends while nobody looks: expire() is then due.
  HeldPrefixes(EngineLoop& loop, cache::KvCache& cache, uint32_t tenants,
               std::function<void()> wake);
  ~HeldPrefixes();

  // Of a request whose first `size` tokens are in the tree, `keys` being those of its prompt or of
  // more: holds the static parts in them.
  void hold_statics(const Request& request, const cache::PromptKeys& keys, uint32_t size);

  // Holds the path of a request that names a chain: whole pages of its first `size` tokens.
  void hold_chain(const Request& request, std::span<const model::TokenId> tokens, uint32_t size);

  // What pin() would say if the request's prompt were computed now.
  PinOutcome look_for_room(const Request& request) const;
  // REQUIRES: request.pin.
  PinOutcome pin(const Request& request);
  bool unpin(const std::string& tenant, const std::string& id);  // false: there is none
  PinList list(const std::string& tenant) const;
  // Pages came into the tree: pins that had lost some look for them.
  void renew();

  // Ends what is over. O(1) while nothing is.
  void expire();
  void clear();

  uint32_t pins() const { return static_cast<uint32_t>(pins_.size()); }
  uint32_t pinned_pages() const { return pinned_pages_; }
  uint32_t pinned_pages_max() const { return cache_.pinned_pages_max(); }
  uint32_t statics() const { return static_cast<uint32_t>(statics_.size()); }

 private:
  struct Pin {
    std::string name;  // in the cache
    std::vector<model::TokenId> tokens;
    cache::PromptKeys keys;
    Clock::TimePoint until;
    uint32_t pages = 0;
  };
  struct Static {
    std::string tenant;
    Clock::TimePoint until;
  };
  using PinKey = std::pair<std::string, std::string>;  // tenant, id

  void on_timer() override { wake_(); }
  void arm(Clock::TimePoint at);
  uint32_t pages_of(const std::string& tenant, const std::string& but_for) const;
  void make_room_for_static(const std::string& tenant);
  void hold(const std::string& name, const std::string& tenant, std::chrono::seconds ttl);

  EngineLoop& loop_;
  cache::KvCache& cache_;
  const uint32_t tenants_;
  const std::function<void()> wake_;
  std::map<PinKey, Pin> pins_;
  uint32_t pinned_pages_ = 0;
  std::unordered_map<std::string, Static> statics_;  // by the key of their last page
  std::optional<Clock::TimePoint> next_;             // when the first of them ends, at the earliest
};

}  // namespace spillway::scheduler
