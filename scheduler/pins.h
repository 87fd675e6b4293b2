// Prefixes that a client asked to be kept: what is asked, and what is told of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::scheduler {

// Of a request that only computes its prompt (max_tokens 0): keep it, whole pages of it.
struct PinOrder {
  std::string id;  // names the pin for its tenant
  std::chrono::seconds ttl{};
};

enum class PinResult : uint8_t {
  kPinned,
  kTooLarge,  // would not fit even if nothing else were pinned
  kNoRoom,    // other pins take the room
  kLost,      // its pages were gone before they could be pinned
};

struct PinOutcome {
  PinResult result = PinResult::kLost;
  uint32_t tokens = 0, pages = 0;  // that the pin covers, or would
  uint32_t pinned_pages = 0;       // of the tenant's pins, without this one
  uint32_t limit_pages = 0;        // for them
};

struct PinInfo {
  std::string id;
  uint32_t tokens = 0, pages = 0;
  uint32_t device_tokens = 0;  // that are on the device now; the rest comes up when it is wanted
  double seconds_left = 0;
};

struct PinList {
  std::vector<PinInfo> pins;  // of one tenant, by id
  uint32_t pinned_pages = 0, limit_pages = 0;
};

}  // namespace spillway::scheduler
