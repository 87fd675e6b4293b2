// Memory for transfers in tests: aligned, filled with a pattern that a seed makes, shared so that
// its end can be watched.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "io/ring.h"
#include "runtime/check.h"
#include "runtime/prng.h"

namespace spillway::io {

class Aligned {
 public:
  explicit Aligned(size_t bytes) : bytes_(bytes) {
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kSectorBytes, bytes + kSectorBytes)),
                std::free);
    CHECK(data_ != nullptr);
    std::memset(data_.get(), 0, bytes + kSectorBytes);
  }
  Aligned(size_t bytes, uint64_t seed) : Aligned(bytes) {
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
      const uint64_t value = (seed * 0x9E3779B97F4A7C15 + at) * 0xBF58476D1CE4E5B9;
      std::memcpy(data_.get() + at, &value, 8);
    }
  }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }
  std::shared_ptr<void> owner() const { return data_; }
  std::weak_ptr<void> watch() const { return data_; }
  std::byte& operator[](size_t index) const { return data_.get()[index]; }
  friend bool operator==(const Aligned& a, const Aligned& b) {
    return a.bytes_ == b.bytes_ && std::memcmp(a.data_.get(), b.data_.get(), a.bytes_) == 0;
  }

 private:
  size_t bytes_;
  std::shared_ptr<std::byte> data_;
};

inline Transfer transfer(std::shared_ptr<File> file, uint64_t offset, const Aligned& memory) {
  Transfer made;
  made.file = std::move(file);
  made.offset = offset;
  made.memory = memory.span();
  made.owner = memory.owner();
  return made;
}

}  // namespace spillway::io
