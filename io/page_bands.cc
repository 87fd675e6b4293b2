#include "io/page_bands.h"

#include <algorithm>

#include "io/store_format.h"
#include "runtime/check.h"

namespace spillway::io {

uint32_t bands_for(uint32_t stored_bytes, uint32_t band_bytes_min) {
  CHECK(band_bytes_min >= kUnitBytes);
  return std::clamp(stored_bytes / band_bytes_min, 1u, kPageBandsMax);
}

ByteRange bytes_of_bands(uint32_t stored_bytes, uint32_t bands, uint32_t first, uint32_t end) {
  const uint64_t units = stored_bytes / kUnitBytes;
  CHECK(first < end);
  CHECK(end <= bands);
  CHECK(bands <= units);
  const auto at = [&](uint64_t band) {
    return static_cast<uint32_t>(units * band / bands * kUnitBytes);
  };
  return {at(first), at(end)};
}

}  // namespace spillway::io
