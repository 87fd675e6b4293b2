#include "model/digest.h"

#include <bit>
#include <cstdio>
#include <cstring>

namespace spillway::model {
namespace {

constexpr uint64_t kOdd = 0xff51afd7ed558ccd;  // a bijection of 64 bits, as are the steps around it

uint64_t finish(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xc4ceb9fe1a85ec53;
  x = (x ^ (x >> 29)) * kOdd;
  return x ^ (x >> 32);
}

}  // namespace

// Each lane takes one word by a 64 x 64 bit product whose halves are folded, so that a change in
// any bit of the word spreads over the lane; lanes are independent, which keeps four products in
// flight.
void Digest::mix(const uint64_t (&words)[4]) {
  __extension__ using Product = unsigned __int128;
  for (int i = 0; i < 4; ++i) {
    const Product product = Product{lanes_[i] ^ words[i]} * kOdd;
    lanes_[i] =
        static_cast<uint64_t>(product >> 64) + std::rotl(static_cast<uint64_t>(product), 23);
  }
}

void Digest::add(std::span<const std::byte> bytes) {
  uint64_t words[4] = {bytes.size(), 0, 0, 0};
  mix(words);
  for (; bytes.size() >= sizeof(words); bytes = bytes.subspan(sizeof(words))) {
    std::memcpy(words, bytes.data(), sizeof(words));
    mix(words);
  }
  if (bytes.empty()) return;
  std::memset(words, 0, sizeof(words));
  std::memcpy(words, bytes.data(), bytes.size());
  mix(words);
}

std::string Digest::hex() const {
  const uint64_t high = finish(
      finish(lanes_[0]) + 3 * finish(lanes_[1] ^ std::rotl(lanes_[2], 17)) + 5 * finish(lanes_[3]));
  const uint64_t low = finish(finish(lanes_[3]) ^ (finish(lanes_[2]) + 7 * finish(lanes_[1])) ^
                              std::rotl(finish(lanes_[0]), 23));
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

}  // namespace spillway::model
