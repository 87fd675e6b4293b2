// A 128-bit hash of many bytes, for telling model files apart. Fast (several GB/s: all weights are
// hashed at load), the same on every machine; not secure against someone who makes collisions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace spillway::model {

class Digest {
 public:
  // Adds the bytes and their number, so that ("ab", "c") and ("a", "bc") differ.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }

  std::string hex() const;  // 32 digits

 private:
  void mix(const uint64_t (&words)[4]);

  std::array<uint64_t, 4> lanes_{0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb,
                                 0xd6e8feb86659fd93};
};

}  // namespace spillway::model
