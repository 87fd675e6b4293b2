#include "tests/same_bits/settings.h"

#include <set>
#include <tuple>

namespace spillway::same_bits {
namespace {

constexpr std::array kChunks = {16u, 48u, 256u, 2048u};

// The factors' values as small numbers.
std::array<uint32_t, 6> values(const Setting& setting) {
  uint32_t chunk = 0;
  while (kChunks[chunk] != setting.chunk) ++chunk;
  return {static_cast<uint32_t>(setting.cached),
          chunk,
          setting.threads,
          setting.crowd ? 1u : 0u,
          setting.preempted ? 1u : 0u,
          setting.seeded ? 1u : 0u};
}

using Pair = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

std::set<Pair> pairs_of(const Setting& setting) {
  std::set<Pair> pairs;
  const auto value = values(setting);
  for (uint32_t a = 0; a < value.size(); ++a) {
    for (uint32_t b = a + 1; b < value.size(); ++b) pairs.insert({a, value[a], b, value[b]});
  }
  return pairs;
}

// How long it takes, roughly: small chunks compute slowly, and alone each token takes a step of its
// own.
uint32_t cost(const Setting& setting) {
  const uint32_t chunk = setting.chunk <= 16 ? 4 : setting.chunk <= 48 ? 2 : 1;
  return chunk + (setting.crowd ? 0 : 1);
}

}  // namespace

std::string Setting::name() const {
  const char* cache = cached == Cached::kCold   ? "cold"
                      : cached == Cached::kPart ? "part cached"
                                                : "whole cached";
  return std::string(cache) + ", chunk " + std::to_string(chunk) + ", threads " +
         std::to_string(threads) + (crowd ? ", crowd" : ", alone") +
         (preempted ? ", preempted" : "") + (seeded ? ", seeded" : ", greedy");
}

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (Cached cached : {Cached::kCold, Cached::kPart, Cached::kWhole}) {
    for (uint32_t chunk : kChunks) {
      for (uint32_t threads : {1u, 2u}) {
        for (uint32_t bits = 0; bits < 8; ++bits) {
          settings.push_back(
              {cached, chunk, threads, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
        }
      }
    }
  }
  return settings;
}

std::vector<Setting> pairwise_settings() {
  const std::vector<Setting> all = all_settings();
  std::set<Pair> open;
  for (const Setting& setting : all) open.merge(pairs_of(setting));
  std::vector<Setting> chosen;
  while (!open.empty()) {
    const Setting* best = nullptr;
    size_t best_count = 0;
    for (const Setting& setting : all) {
      size_t count = 0;
      for (const Pair& pair : pairs_of(setting)) count += open.count(pair);
      if (count > best_count ||
          (count == best_count && best != nullptr && cost(setting) < cost(*best))) {
        best = &setting;
        best_count = count;
      }
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

}  // namespace spillway::same_bits
