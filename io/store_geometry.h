// Where everything lies in the store's file: two superblocks, two index regions, the slots.
// Plans a new file, and judges a superblock that was read (any bytes: it is the world).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/store_format.h"
#include "runtime/result.h"

namespace spillway::io {

struct Geometry {
  uint64_t file_bytes = 0;
  uint64_t region_offset[2] = {};
  uint64_t region_bytes = 0;  // of each
  uint64_t area_offset = 0;
  uint64_t area_bytes = 0;

  uint64_t region_blocks() const { return region_bytes / kIndexBlockBytes; }
  uint32_t area_units() const { return static_cast<uint32_t>(area_bytes / kUnitBytes); }
};

// A file of at most `bytes`. The regions have room for four times the records of a file full of
// pages of the smallest class: half of a region may be live pages, the rest is journal, so that
// rewriting the live ones is rare. kInvalidArgument, saying what is needed, when no page fits.
Result<Geometry> plan_geometry(uint64_t bytes, std::span<const uint32_t> slot_bytes,
                               uint32_t page_tokens);

// The same regions in a file of another size, if they suffice for it; nothing if they do not.
std::optional<Geometry> resize_geometry(const Geometry& old, const Geometry& planned,
                                        uint32_t slot_bytes_max);

Geometry geometry_of(const Superblock& superblock);

// Fills the sector (kSectorBytes), checksum included.
void write_superblock(Superblock superblock, std::span<std::byte> sector);
// The superblock in this sector of a file of `file_bytes`; kNotFound: zeros, never written.
// kUnsupported: another version. kCorrupt: damaged, or says what cannot be.
Result<Superblock> read_superblock(std::span<const std::byte> sector, uint64_t file_bytes);

}  // namespace spillway::io
