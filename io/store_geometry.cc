#include "io/store_geometry.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace spillway::io {
namespace {

constexpr uint64_t kRegionBlocksMin = 8;
constexpr uint64_t kUnitsMax = UINT32_MAX - 1;

uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

uint64_t region_blocks_for(uint64_t pages, uint32_t page_tokens) {
  const uint64_t record =
      round_up(sizeof(PageRecord) + sizeof(uint64_t) + sizeof(int32_t) * page_tokens, 8);
  const uint64_t records_a_block = kIndexBlockRoom / record;
  return std::max(kRegionBlocksMin, 4 * pages / records_a_block + 1);
}

Error damaged(const char* what) {
  return {ErrorCode::kCorrupt, std::string("the superblock ") + what};
}

bool region_fits(const Superblock& superblock, int region, uint64_t header_bytes) {
  const uint64_t offset = superblock.region_offset[region];
  return offset % kSectorBytes == 0 && offset >= header_bytes &&
         offset <= superblock.file_bytes - superblock.region_bytes;
}

}  // namespace

Result<Geometry> plan_geometry(uint64_t bytes, std::span<const uint32_t> slot_bytes,
                               uint32_t page_tokens) {
  CHECK(!slot_bytes.empty());
  const uint64_t sectors = bytes / kSectorBytes;
  const uint64_t pages = bytes / slot_bytes.front();
  const uint64_t region = region_blocks_for(pages, page_tokens);
  const uint64_t before_slots = kSuperblocks + 2 * region;
  const uint64_t largest = slot_bytes.back() / kSectorBytes;
  if (sectors < before_slots + largest) {
    const uint64_t least =
        kSuperblocks +
        2 * region_blocks_for(slot_bytes.back() / slot_bytes.front() + 1, page_tokens) + largest;
    return invalid_argument("a store of " + std::to_string(bytes) +
                            " bytes has no room for a page; it takes at least " +
                            std::to_string(std::max(least, before_slots + largest) * kSectorBytes));
  }
  Geometry geometry;
  geometry.file_bytes = sectors * kSectorBytes;
  geometry.region_bytes = region * kIndexBlockBytes;
  geometry.region_offset[0] = kSuperblocks * kSectorBytes;
  geometry.region_offset[1] = geometry.region_offset[0] + geometry.region_bytes;
  geometry.area_offset = before_slots * kSectorBytes;
  geometry.area_bytes = geometry.file_bytes - geometry.area_offset;
  if (geometry.area_bytes / kUnitBytes > kUnitsMax) {
    return invalid_argument("a store can have at most 16 TiB");
  }
  return geometry;
}

std::optional<Geometry> resize_geometry(const Geometry& old, const Geometry& planned,
                                        uint32_t slot_bytes_max) {
  // With half the planned room a region still holds a full store, with less journal behind it.
  if (old.region_bytes < planned.region_bytes / 2) return std::nullopt;
  if (planned.file_bytes < old.area_offset + slot_bytes_max) return std::nullopt;
  Geometry resized = old;
  resized.file_bytes = planned.file_bytes;
  resized.area_bytes = planned.file_bytes - old.area_offset;
  return resized;
}

Geometry geometry_of(const Superblock& superblock) {
  Geometry geometry;
  geometry.file_bytes = superblock.file_bytes;
  geometry.region_offset[0] = superblock.region_offset[0];
  geometry.region_offset[1] = superblock.region_offset[1];
  geometry.region_bytes = superblock.region_bytes;
  geometry.area_offset = superblock.area_offset;
  geometry.area_bytes = superblock.area_bytes;
  return geometry;
}

void write_superblock(Superblock superblock, std::span<std::byte> sector) {
  CHECK(sector.size() == kSectorBytes);
  std::fill(sector.begin(), sector.end(), std::byte{});
  superblock.checksum = 0;
  std::memcpy(sector.data(), &superblock, sizeof superblock);
  superblock.checksum = XXH3_64bits(sector.data(), sector.size());
  std::memcpy(sector.data(), &superblock, sizeof superblock);
}

Result<Superblock> read_superblock(std::span<const std::byte> sector, uint64_t file_bytes) {
  CHECK(sector.size() == kSectorBytes);
  const auto is_zero = [](std::byte byte) { return byte == std::byte{}; };
  if (std::all_of(sector.begin(), sector.end(), is_zero)) {
    return Error{ErrorCode::kNotFound, "there is no superblock"};
  }
  Superblock found;
  std::memcpy(&found, sector.data(), sizeof found);
  if (std::memcmp(found.magic, kSuperblockMagic, sizeof found.magic) != 0) {
    return damaged("does not begin as one does");
  }
  if (found.version < kOldestFormatVersion || found.version > kFormatVersion) {
    return Error{ErrorCode::kUnsupported,
                 "the store has format version " + std::to_string(found.version) +
                     "; this program reads versions " + std::to_string(kOldestFormatVersion) +
                     " to " + std::to_string(kFormatVersion)};
  }
  std::byte copy[kSectorBytes];
  std::memcpy(copy, sector.data(), sizeof copy);
  std::memset(copy + offsetof(Superblock, checksum), 0, sizeof found.checksum);
  if (XXH3_64bits(copy, sizeof copy) != found.checksum) return damaged("is damaged");

  // The checksum is no proof of good will: all that follows depends on these bounds.
  if (found.file_bytes > file_bytes) return damaged("is of a larger file: this one was truncated");
  if (found.file_bytes % kSectorBytes != 0) return damaged("has an impossible file size");
  if (found.unit_bytes != kUnitBytes) return damaged("has an unknown unit");
  if (found.epoch == 0 || found.epoch >= kEpochMax) return damaged("has an impossible epoch");
  if (found.sequence == 0 || found.sequence >= UINT64_MAX / 2) {
    return damaged("has an impossible sequence number");
  }
  if (found.region > 1) return damaged("names a third index region");
  const uint64_t header_bytes = kSuperblocks * kSectorBytes;
  if (found.region_bytes % kIndexBlockBytes != 0 ||
      found.region_bytes < kRegionBlocksMin * kIndexBlockBytes ||
      found.region_bytes > found.file_bytes || !region_fits(found, 0, header_bytes) ||
      !region_fits(found, 1, header_bytes)) {
    return damaged("has index regions that do not fit the file");
  }
  const uint64_t low = std::min(found.region_offset[0], found.region_offset[1]);
  const uint64_t high = std::max(found.region_offset[0], found.region_offset[1]);
  if (high - low < found.region_bytes) return damaged("has index regions that overlap");
  if (found.snapshot_blocks > found.region_bytes / kIndexBlockBytes) {
    return damaged("has a snapshot larger than its region");
  }
  if (found.area_offset % kSectorBytes != 0 || found.area_offset < high + found.region_bytes ||
      found.area_offset > found.file_bytes ||
      found.area_bytes != found.file_bytes - found.area_offset ||
      found.area_bytes / kUnitBytes > kUnitsMax) {
    return damaged("has a slot area that does not fit the file");
  }
  return found;
}

}  // namespace spillway::io
