#include "scheduler/held_prefixes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/check.h"

namespace spillway::scheduler {
namespace {

double seconds_between(Clock::TimePoint from, Clock::TimePoint to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

}  // namespace

HeldPrefixes::HeldPrefixes(EngineLoop& loop, cache::KvCache& cache, uint32_t tenants,
                           std::function<void()> wake)
    : loop_(loop), cache_(cache), tenants_(std::max(tenants, 1u)), wake_(std::move(wake)) {}

HeldPrefixes::~HeldPrefixes() { clear(); }

void HeldPrefixes::hold_statics(const Request& request, const cache::PromptKeys& keys,
                                uint32_t size) {
  const uint32_t page_tokens = cache_.page_tokens();
  const std::span<const model::TokenId> prompt(request.prompt);
  for (const Breakpoint& breakpoint : request.breakpoints) {
    const uint32_t whole = std::min(breakpoint.tokens, size) / page_tokens * page_tokens;
    if (whole == 0 || breakpoint.tokens > size || breakpoint.ttl.count() == 0) continue;
    const auto tokens = prompt.first(whole);
    cache::PromptKeys part;
    part.space = keys.space;
    part.tokens = whole;
    part.pages.assign(keys.pages.begin(), keys.pages.begin() + whole / page_tokens);
    const cache::PageKey& last = part.pages.back();
    const std::string name(reinterpret_cast<const char*>(&last), sizeof last);
    hold(name, request.tenant, breakpoint.ttl);
    cache_.hold_static(name, part, tokens);
  }
}

void HeldPrefixes::hold_chain(const Request& request, std::span<const model::TokenId> tokens,
                              uint32_t size) {
  const uint32_t whole = size / cache_.page_tokens() * cache_.page_tokens();
  if (request.chain.empty() || whole == 0) return;
  const std::string name = "chain " + request.chain;
  hold(name, request.tenant, kChainTtl);
  const auto path = tokens.first(whole);
  cache_.hold_static(name, cache_.keys(request.tenant, request.cache_salt, path), path);
}

void HeldPrefixes::hold(const std::string& name, const std::string& tenant,
                        std::chrono::seconds ttl) {
  if (!statics_.contains(name)) make_room_for_static(tenant);
  Static& held = statics_[name];
  held.tenant = tenant;
  held.until = std::max(held.until, loop_.clock().now() + ttl);
  arm(held.until);
}

void HeldPrefixes::make_room_for_static(const std::string& tenant) {
  if (statics_.size() < kStaticsMax) return;
  // From whoever holds the most, so that nobody can keep all places (case I2): from `tenant` itself
  // where that is it.
  std::unordered_map<std::string_view, size_t> counts;
  for (const auto& [name, held] : statics_) ++counts[held.tenant];
  size_t most = 0;
  for (const auto& [who, count] : counts) most = std::max(most, count);
  const bool own = counts[tenant] == most;
  const auto order = [&](const auto& a, const auto& b) {
    const auto key = [&](const Static& held) {
      const bool gives = own ? held.tenant == tenant : counts[held.tenant] == most;
      return std::pair(!gives, held.until);
    };
    return key(a.second) < key(b.second);
  };
  const auto first = std::min_element(statics_.begin(), statics_.end(), order);
  cache_.drop_static(first->first);
  statics_.erase(first);
}

uint32_t HeldPrefixes::pages_of(const std::string& tenant, const std::string& but_for) const {
  uint32_t pages = 0;
  for (auto pin = pins_.lower_bound({tenant, {}}); pin != pins_.end(); ++pin) {
    if (pin->first.first != tenant) break;
    if (pin->first.second != but_for) pages += pin->second.pages;
  }
  return pages;
}

PinOutcome HeldPrefixes::look_for_room(const Request& request) const {
  CHECK(request.pin.has_value());
  const uint32_t page_tokens = cache_.page_tokens();
  PinOutcome outcome;
  outcome.pages = static_cast<uint32_t>(request.prompt.size()) / page_tokens;
  outcome.tokens = outcome.pages * page_tokens;
  outcome.limit_pages = cache_.pinned_pages_max() / tenants_;
  outcome.pinned_pages = pages_of(request.tenant, request.pin->id);
  const auto before = pins_.lower_bound({request.tenant, {}});
  const auto count = std::count_if(
      before, pins_.end(), [&](const auto& pin) { return pin.first.first == request.tenant; });
  const bool full =
      static_cast<size_t>(count) >= kPinsMax && !pins_.contains({request.tenant, request.pin->id});
  outcome.result = outcome.pages > outcome.limit_pages ? PinResult::kTooLarge
                   : full || outcome.pinned_pages + outcome.pages > outcome.limit_pages
                       ? PinResult::kNoRoom
                       : PinResult::kPinned;
  return outcome;
}

PinOutcome HeldPrefixes::pin(const Request& request) {
  PinOutcome outcome = look_for_room(request);
  if (outcome.result != PinResult::kPinned) return outcome;
  Pin pin;
  pin.tokens.assign(request.prompt.begin(), request.prompt.begin() + outcome.tokens);
  pin.keys = cache_.keys(request.tenant, request.cache_salt, pin.tokens);
  pin.name = request.tenant + '\0' + request.pin->id;
  pin.pages = outcome.pages;
  pin.until = loop_.clock().now() + request.pin->ttl;
  if (outcome.pages == 0 || !cache_.pin_prefix(pin.name, pin.keys, pin.tokens)) {
    outcome.result = PinResult::kLost;
    return outcome;
  }
  const auto [known, is_new] = pins_.try_emplace({request.tenant, request.pin->id});
  pinned_pages_ += pin.pages - known->second.pages;
  known->second = std::move(pin);
  arm(known->second.until);
  return outcome;
}

bool HeldPrefixes::unpin(const std::string& tenant, const std::string& id) {
  const auto found = pins_.find({tenant, id});
  if (found == pins_.end()) return false;
  cache_.unpin_prefix(found->second.name);
  pinned_pages_ -= found->second.pages;
  pins_.erase(found);
  return true;
}

PinList HeldPrefixes::list(const std::string& tenant) const {
  PinList list;
  list.limit_pages = cache_.pinned_pages_max() / tenants_;
  list.pinned_pages = pages_of(tenant, {});
  const Clock::TimePoint now = loop_.clock().now();
  for (auto pin = pins_.lower_bound({tenant, {}}); pin != pins_.end(); ++pin) {
    if (pin->first.first != tenant) break;
    list.pins.push_back(
        {.id = pin->first.second,
         .tokens = static_cast<uint32_t>(pin->second.tokens.size()),
         .pages = pin->second.pages,
         .device_tokens = cache_.pinned_pages(pin->second.name) * cache_.page_tokens(),
         .seconds_left = seconds_between(now, pin->second.until)});
  }
  return list;
}

void HeldPrefixes::renew() {
  for (auto& [key, pin] : pins_) {
    if (cache_.pinned_pages(pin.name) >= pin.pages) continue;
    cache_.pin_prefix(pin.name, pin.keys, pin.tokens);
  }
}

// Looks again when the first of all is over.
void HeldPrefixes::arm(Clock::TimePoint at) {
  if (next_ && *next_ <= at) return;
  if (queued()) loop_.remove_timer(*this);
  next_ = at;
  loop_.add_timer(*this, at);
}

void HeldPrefixes::expire() {
  const Clock::TimePoint now = loop_.clock().now();
  if (!next_ || now < *next_) return;
  if (queued()) loop_.remove_timer(*this);
  next_.reset();
  std::erase_if(pins_, [&](const auto& entry) {
    const Pin& pin = entry.second;
    if (pin.until > now) return false;
    cache_.unpin_prefix(pin.name);
    pinned_pages_ -= pin.pages;
    return true;
  });
  std::erase_if(statics_, [&](const auto& entry) {
    if (entry.second.until > now) return false;
    cache_.drop_static(entry.first);
    return true;
  });
  for (const auto& [key, pin] : pins_) arm(pin.until);
  for (const auto& [name, held] : statics_) arm(held.until);
}

void HeldPrefixes::clear() {
  for (const auto& [key, pin] : pins_) cache_.unpin_prefix(pin.name);
  for (const auto& [name, held] : statics_) cache_.drop_static(name);
  pins_.clear();
  statics_.clear();
  pinned_pages_ = 0;
  if (queued()) loop_.remove_timer(*this);
  next_.reset();
}

}  // namespace spillway::scheduler
