// What the fuzzer of the page codecs and the test of its seeds do with some bytes: two that give
// the page's size in units of 64 bytes, then what is to be decoded.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "kernels/page_codec.h"

namespace spillway::kernels {

// Whether they are an encoded page. Aborts where decoding and encoding contradict each other.
inline bool decode_any_bytes(std::span<const uint8_t> input) {
  if (input.size() < 2) return false;
  const size_t page_bytes = (size_t{input[0]} | size_t{input[1]} << 8) * 64;
  const auto encoded = std::as_bytes(input.subspan(2));
  std::vector<std::byte> page(page_bytes), again(page_bytes);
  PageCoder coder;
  if (!coder.decode(PageCodec::kPlanes, encoded, page)) return false;
  // These bytes may not be the ones that we would make, but ours must give the same page.
  std::vector<std::byte> ours(page_bytes + page_bytes / 8 + 64);
  ours.resize(coder.encode(PageCodec::kPlanes, page, ours));
  if (!coder.decode(PageCodec::kPlanes, ours, again) || again != page) std::abort();
  return true;
}

}  // namespace spillway::kernels
