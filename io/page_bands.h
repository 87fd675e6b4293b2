// Where the bands of a stored page begin and end. A page's bytes are in the order of its layers, so
// a band is a run of layers: each has a checksum of its own and can be read alone. Pure.
#pragma once

#include <cstdint>

namespace spillway::io {

inline constexpr uint32_t kPageBandsMax = 8;

struct ByteRange {  // of a page
  uint32_t begin = 0, end = 0;
};

// How many bands a page of so many stored bytes is written in: as many as there may be, none
// smaller than `band_bytes_min`; at least one.
uint32_t bands_for(uint32_t stored_bytes, uint32_t band_bytes_min);

// Bands [first, end) of `bands` that divide the page's units (of 4 KiB) evenly, the last ones being
// the larger. REQUIRES: first < end <= bands <= units of stored_bytes.
ByteRange bytes_of_bands(uint32_t stored_bytes, uint32_t bands, uint32_t first, uint32_t end);

}  // namespace spillway::io
