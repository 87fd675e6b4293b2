#include "model/top_select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr size_t kRadixFrom = 2048;   // below, std::sort is quicker
constexpr size_t kSelectUpTo = 4096;  // above, sorting all is quicker than selecting
constexpr size_t kBlock = 64;

// An integer that ascends as the value descends; -0 and 0 are one value.
uint32_t descending_key(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

void radix_sort(std::vector<Candidate>& candidates, std::vector<Candidate>& spare) {
  constexpr uint32_t kBits = 11;
  constexpr uint32_t kBuckets = 1u << kBits;
  spare.resize(candidates.size());
  for (uint32_t shift = 0; shift < 32; shift += kBits) {
    std::array<uint32_t, kBuckets> ends{};
    auto bucket = [shift](const Candidate& c) {
      return descending_key(c.value) >> shift & (kBuckets - 1);
    };
    for (const Candidate& c : candidates) ++ends[bucket(c)];
    uint32_t begin = 0;
    for (uint32_t& end : ends) begin += std::exchange(end, begin);
    for (const Candidate& c : candidates) spare[ends[bucket(c)]++] = c;
    candidates.swap(spare);
  }
}

// Keeps the best `count`, in no order.
void cut(std::vector<Candidate>& candidates, size_t count) {
  if (candidates.size() <= count) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count) - 1,
                   candidates.end(), ranks_before);
  candidates.resize(count);
}

bool any_above(const float* values, float threshold) {
  uint32_t above = 0;
  for (size_t i = 0; i < kBlock; ++i) above |= static_cast<uint32_t>(values[i] > threshold);
  return above != 0;
}

}  // namespace

void sort_candidates(std::vector<Candidate>& candidates, std::vector<Candidate>& spare) {
  if (candidates.size() < kRadixFrom) {
    std::sort(candidates.begin(), candidates.end(), ranks_before);
  } else {
    radix_sort(candidates, spare);
  }
}

void select_top(std::span<const float> row, size_t count, std::vector<Candidate>& out,
                std::vector<Candidate>& spare) {
  out.clear();
  if (count == 0) return;
  const bool select = count <= kSelectUpTo;
  float threshold = kNegativeInfinity;  // what a later token must exceed: equal ones rank behind
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const size_t end = std::min(row.size(), begin + kBlock);
    if (end - begin == kBlock && !any_above(row.data() + begin, threshold)) continue;
    for (size_t i = begin; i < end; ++i) {
      if (row[i] > threshold) out.push_back({row[i], static_cast<TokenId>(i)});
    }
    if (select && out.size() >= 2 * count + kBlock) {
      cut(out, count);
      threshold = out.back().value;  // nth_element leaves the last of them in its place
    }
  }
  if (select) {
    cut(out, count);
    std::sort(out.begin(), out.end(), ranks_before);
  } else {
    sort_candidates(out, spare);
    if (out.size() > count) out.resize(count);
  }
}

size_t rank_of(std::span<const float> row, TokenId token) {
  const size_t index = static_cast<size_t>(token);
  CHECK(index < row.size());
  const float value = row[index];
  uint32_t before = 0;
  for (size_t i = 0; i < index; ++i) before += static_cast<uint32_t>(row[i] >= value);
  for (size_t i = index; i < row.size(); ++i) before += static_cast<uint32_t>(row[i] > value);
  return before;
}

}  // namespace spillway::model
