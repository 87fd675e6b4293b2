// The ways in which one and the same prompt may be computed, and a covering choice among them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::same_bits {

enum class Cached : uint8_t { kCold, kPart, kWhole };

struct Setting {
  Cached cached = Cached::kCold;
  uint32_t chunk = 512;  // rows of one step
  uint32_t threads = 2;
  bool crowd = false;      // all prompts at once, else one after the other
  bool preempted = false;  // a running sequence is preempted every few steps
  bool seeded = false;     // drawn at temperature 1, else greedy

  std::string name() const;
};

std::vector<Setting> all_settings();
// Fewest that a greedy search finds so that each pair of values of two factors occurs together; of
// equals the quicker ones.
std::vector<Setting> pairwise_settings();

}  // namespace spillway::same_bits
