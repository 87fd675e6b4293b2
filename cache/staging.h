// Buffers for pages on their way from the device to the store: a page is copied here, its pins are
// given back, and the disk may take as long as it likes. Engine thread only; nobody waits for a
// slot: who finds none goes without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/check.h"

namespace spillway::cache {

class Staging {
 public:
  // One slot, held by whoever fills it and by the operation that reads it.
  class Slot {
   public:
    Slot(Staging& of, uint32_t index) : of_(of), index_(index) {}
    ~Slot() { of_.free_.push_back(index_); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    std::byte* data() const { return of_.memory_.data() + index_ * of_.slot_bytes_; }

   private:
    Staging& of_;
    const uint32_t index_;
  };

  // `memory` is aligned to 4 KiB and outlives the staging, which outlives its slots.
  Staging(std::span<std::byte> memory, size_t slot_bytes)
      : memory_(memory), slot_bytes_(slot_bytes) {
    CHECK(slot_bytes > 0);
    for (size_t i = memory.size() / slot_bytes; i > 0; --i) {
      free_.push_back(static_cast<uint32_t>(i - 1));
    }
  }

  std::shared_ptr<Slot> take() {
    if (free_.empty()) return nullptr;
    const uint32_t index = free_.back();
    free_.pop_back();
    return std::make_shared<Slot>(*this, index);
  }
  size_t free_slots() const { return free_.size(); }
  size_t slots() const { return memory_.size() / slot_bytes_; }

 private:
  const std::span<std::byte> memory_;
  const size_t slot_bytes_;
  std::vector<uint32_t> free_;
};

}  // namespace spillway::cache
