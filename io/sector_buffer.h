// Memory that transfers may use: aligned to kSectorBytes, a multiple of it long, zeroed. Shared, so
// that it can be the owner of a transfer (ring.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "io/ring.h"
#include "runtime/check.h"

namespace spillway::io {

class SectorBuffer {
 public:
  SectorBuffer() = default;
  // REQUIRES: a positive multiple of kSectorBytes.
  explicit SectorBuffer(size_t bytes) : bytes_(bytes) {
    CHECK(bytes > 0);
    CHECK(bytes % kSectorBytes == 0);
    constexpr std::align_val_t kAlignment{kSectorBytes};
    auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    std::fill_n(memory, bytes, std::byte{});
    memory_ = std::shared_ptr<std::byte>(
        memory, [](std::byte* old) { ::operator delete(old, std::align_val_t{kSectorBytes}); });
  }

  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }
  std::span<std::byte> first(size_t bytes) const { return this->bytes().first(bytes); }
  std::shared_ptr<void> owner() const { return memory_; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t bytes_ = 0;
};

}  // namespace spillway::io
