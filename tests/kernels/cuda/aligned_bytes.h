// Memory for kernels that load vectors: bytes from a seed that end where memory does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>

namespace spillway::kernels::cuda {

// On a boundary of 16; what is past them is nobody's, for AddressSanitizer to see.
class AlignedBytes {
 public:
  AlignedBytes(size_t bytes, uint32_t seed)
      : bytes_(bytes), memory_(new(kAligned) std::byte[bytes]) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < bytes; ++i) memory_[i] = static_cast<std::byte>(random());
  }
  AlignedBytes(const AlignedBytes& other)
      : bytes_(other.bytes_), memory_(new(kAligned) std::byte[bytes_]) {
    std::copy_n(other.memory_, bytes_, memory_);
  }
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { operator delete[](memory_, kAligned); }

  std::byte* data() { return memory_; }
  const std::byte* data() const { return memory_; }
  size_t size() const { return bytes_; }
  friend bool operator==(const AlignedBytes& a, const AlignedBytes& b) {
    return std::equal(a.memory_, a.memory_ + a.bytes_, b.memory_, b.memory_ + b.bytes_);
  }

 private:
  static constexpr std::align_val_t kAligned{16};
  size_t bytes_;
  std::byte* memory_;
};

}  // namespace spillway::kernels::cuda
