// Two read-mostly hash tables for tokenizers: one array each, linear probing, at most 3/4 full.
// Filled once, then any thread may look things up.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace spillway::model {

inline uint64_t mix_hash(uint64_t value) {
  value = (value ^ (value >> 32)) * 0x9FB21C651E98DF25u;
  return value ^ (value >> 29);
}

inline uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = mix_hash(hash ^ word);
  }
  uint64_t tail = 0;
  if (at < bytes.size()) std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  return mix_hash(hash ^ tail);
}

// Byte strings to ids. The bytes belong to someone else and must stay.
class StringIndex {
 public:
  static constexpr uint32_t kAbsent = UINT32_MAX;

  explicit StringIndex(size_t count = 0) : slots_(std::bit_ceil(count * 4 / 3 + 2)) {}

  // The id that is there already, or `id`, which is there now. REQUIRES: key under 4 GiB.
  uint32_t insert(std::string_view key, uint32_t id) {
    if (4 * (count_ + 1) > 3 * slots_.size()) grow();
    Slot& slot = slots_[find_slot(key)];
    if (slot.id == kAbsent) {
      slot = {key.data(), static_cast<uint32_t>(key.size()), id};
      ++count_;
    }
    return slot.id;
  }

  uint32_t find(std::string_view key) const { return slots_[find_slot(key)].id; }

 private:
  struct Slot {  // 16 bytes: a quarter of a cache line
    const char* data = nullptr;
    uint32_t bytes = 0;
    uint32_t id = kAbsent;

    std::string_view key() const { return {data, bytes}; }
  };

  size_t find_slot(std::string_view key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = hash_bytes(key) & mask;
    while (slots_[at].id != kAbsent && slots_[at].key() != key) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id != kAbsent) slots_[find_slot(slot.key())] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// Pairs of symbols to what merging them gives.
class MergeIndex {
 public:
  struct Merge {
    uint32_t rank;
    uint32_t symbol;
  };

  // REQUIRES: at most `count` pairs are inserted.
  explicit MergeIndex(size_t count = 0) : slots_(std::bit_ceil(count * 4 / 3 + 2)) {}

  // The first merge of a pair counts.
  void insert(uint32_t left, uint32_t right, Merge merge) {
    Slot& slot = slots_[find_slot(left, right)];
    if (slot.key == kFree) slot = {key_of(left, right), merge};
  }

  const Merge* find(uint32_t left, uint32_t right) const {
    const Slot& slot = slots_[find_slot(left, right)];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    Merge merge{};
  };

  static uint64_t key_of(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << 32 | right;
  }

  size_t find_slot(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    const size_t mask = slots_.size() - 1;
    size_t at = mix_hash(key * 0x9E3779B97F4A7C15u) & mask;
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace spillway::model
