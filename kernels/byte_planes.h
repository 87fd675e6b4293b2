// 16-bit numbers as two planes of bytes: what page_codec.h codes. Each number is turned left by one
// bit; the upper byte then has the exponent, or most of it, the lower one mantissa and sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spillway::kernels {

// `count` numbers into two planes of `count` bytes. No two of the three overlap. The plain loops
// are what the compiler makes SSE of: 10 GB/s, several times the entropy coder.
inline void split_planes(const std::byte* __restrict numbers, size_t count,
                         std::byte* __restrict upper, std::byte* __restrict lower) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t number;
    std::memcpy(&number, numbers + 2 * i, sizeof number);
    const auto turned = static_cast<uint16_t>(number << 1 | number >> 15);
    upper[i] = static_cast<std::byte>(turned >> 8);
    lower[i] = static_cast<std::byte>(turned);
  }
}

inline void join_planes(const std::byte* __restrict upper, const std::byte* __restrict lower,
                        size_t count, std::byte* __restrict numbers) {
  for (size_t i = 0; i < count; ++i) {
    const auto turned = static_cast<uint16_t>(static_cast<uint16_t>(upper[i]) << 8 |
                                              static_cast<uint16_t>(lower[i]));
    const auto number = static_cast<uint16_t>(turned >> 1 | turned << 15);
    std::memcpy(numbers + 2 * i, &number, sizeof number);
  }
}

}  // namespace spillway::kernels
