// A store whose file somebody has written into: opens it and uses it, whatever it holds then.
#pragma once

#include <cstdint>
#include <span>

namespace spillway::io {

struct EditedStore {
  bool new_store = false;  // what was there had to be set aside
  uint64_t pages = 0;      // visible after opening
  uint64_t wrong = 0;      // of these, ones whose bytes did not verify
};

// `edits` are steps of 5 + n bytes: sector, place in it (2), n, what; then n bytes to put there.
// Bit 0 of `what`: the sector's checksum is made right again, so that its fields count.
// A page that verifies has the bytes that it was put with; all else fails a CHECK.
EditedStore open_edited_store(std::span<const uint8_t> edits);

}  // namespace spillway::io
