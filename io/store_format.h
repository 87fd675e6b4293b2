// The block store's bytes on disk; docs/ON_DISK_FORMAT.md explains them. Little-endian, fixed
// sizes. Any change to a struct here, or to what a checksum covers, is a new kFormatVersion.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "io/ring.h"

namespace spillway::io {

static_assert(std::endian::native == std::endian::little, "the store's format is little-endian");

inline constexpr uint32_t kFormatVersion = 2;
// Version 1 is this one with one band in every page.
inline constexpr uint32_t kOldestFormatVersion = 1;
inline constexpr char kSuperblockMagic[8] = {'S', 'P', 'I', 'L', 'L', 'K', 'V', '\n'};
inline constexpr uint32_t kIndexBlockMagic = 0x58495053;  // "SPIX"
inline constexpr uint32_t kUnitBytes = kSectorBytes;      // slots begin and end on it
inline constexpr uint32_t kIndexBlockBytes = kSectorBytes;
inline constexpr uint32_t kSuperblocks = 2;  // at offset 0 and kSectorBytes, written in turn
inline constexpr uint64_t kUidMax = UINT64_MAX / 2;  // of a page; numbers only go up
inline constexpr uint64_t kEpochMax = (uint64_t{1} << 24) - 1;
inline constexpr uint32_t kSpaceBytesMax = 3072;  // of a namespace's identity

struct Superblock {  // kSectorBytes on disk, zeros behind these fields
  char magic[8];
  uint32_t version;
  uint32_t unit_bytes;
  uint64_t checksum;         // XXH3-64 of the sector with zeros in this field
  uint64_t sequence;         // of superblocks; the higher of two valid ones counts
  uint64_t epoch;            // of the snapshot that it names; each snapshot has the next
  uint64_t snapshot_id;      // random; in every index block since that snapshot
  uint32_t region;           // which of the two index regions holds it
  uint32_t snapshot_blocks;  // its length; journal blocks follow
  uint64_t store_id[2];      // random
  uint64_t secret;           // random; seeds page keys and namespaces
  uint64_t file_bytes;
  uint64_t region_offset[2];
  uint64_t region_bytes;  // of each
  uint64_t area_offset;   // of unit 0 of the slots
  uint64_t area_bytes;
};
static_assert(offsetof(Superblock, magic) == 0);
static_assert(offsetof(Superblock, version) == 8);
static_assert(offsetof(Superblock, unit_bytes) == 12);
static_assert(offsetof(Superblock, checksum) == 16);
static_assert(offsetof(Superblock, sequence) == 24);
static_assert(offsetof(Superblock, epoch) == 32);
static_assert(offsetof(Superblock, snapshot_id) == 40);
static_assert(offsetof(Superblock, region) == 48);
static_assert(offsetof(Superblock, snapshot_blocks) == 52);
static_assert(offsetof(Superblock, store_id) == 56);
static_assert(offsetof(Superblock, secret) == 72);
static_assert(offsetof(Superblock, file_bytes) == 80);
static_assert(offsetof(Superblock, region_offset) == 88);
static_assert(offsetof(Superblock, region_bytes) == 104);
static_assert(offsetof(Superblock, area_offset) == 112);
static_assert(offsetof(Superblock, area_bytes) == 120);
static_assert(sizeof(Superblock) == 128);

struct IndexBlockHeader {  // records follow, one after the other
  uint32_t magic;
  uint32_t record_bytes;  // of all records in the block
  uint64_t checksum;      // XXH3-64 of the block with zeros in this field
  uint64_t snapshot_id;
  uint64_t epoch;
  uint64_t index;  // of the block in its region
  uint64_t store_id[2];
  uint32_t records;
  uint32_t zero;
};
static_assert(offsetof(IndexBlockHeader, magic) == 0);
static_assert(offsetof(IndexBlockHeader, record_bytes) == 4);
static_assert(offsetof(IndexBlockHeader, checksum) == 8);
static_assert(offsetof(IndexBlockHeader, snapshot_id) == 16);
static_assert(offsetof(IndexBlockHeader, epoch) == 24);
static_assert(offsetof(IndexBlockHeader, index) == 32);
static_assert(offsetof(IndexBlockHeader, store_id) == 40);
static_assert(offsetof(IndexBlockHeader, records) == 56);
static_assert(offsetof(IndexBlockHeader, zero) == 60);
static_assert(sizeof(IndexBlockHeader) == 64);
inline constexpr uint32_t kIndexBlockRoom = kIndexBlockBytes - sizeof(IndexBlockHeader);

enum class RecordType : uint16_t { kSpace = 1, kPage = 2, kTombstone = 3 };

struct RecordHeader {
  uint16_t type;   // RecordType
  uint16_t bytes;  // of the whole record: a multiple of 8
};
static_assert(sizeof(RecordHeader) == 4);

struct SpaceRecord {  // the identity's bytes follow
  RecordHeader header;
  uint32_t id;
  uint32_t identity_bytes;
  uint32_t zero;
};
static_assert(offsetof(SpaceRecord, id) == 4);
static_assert(offsetof(SpaceRecord, identity_bytes) == 8);
static_assert(offsetof(SpaceRecord, zero) == 12);
static_assert(sizeof(SpaceRecord) == 16);
static_assert(sizeof(SpaceRecord) + kSpaceBytesMax <= kIndexBlockRoom);

struct PageRecord {  // band_count uint64_t checksums follow, then token_count int32_t tokens
  RecordHeader header;
  uint32_t space;       // id of a SpaceRecord before it
  uint32_t slot;        // its first unit
  uint32_t slot_units;  // as many belong to it
  uint64_t generation;
  uint64_t key[2];
  uint64_t uid;         // names the prefix that ends with this page; never given twice
  uint64_t parent_uid;  // of the prefix one page shorter; 0: there is none
  uint32_t position;
  uint32_t group;
  uint32_t codec;
  uint32_t encoded_bytes;
  uint32_t stored_bytes;
  uint16_t token_count;
  uint16_t band_count;  // 1 to kPageBandsMax (page_bands.h)
};
static_assert(offsetof(PageRecord, space) == 4);
static_assert(offsetof(PageRecord, slot) == 8);
static_assert(offsetof(PageRecord, slot_units) == 12);
static_assert(offsetof(PageRecord, generation) == 16);
static_assert(offsetof(PageRecord, key) == 24);
static_assert(offsetof(PageRecord, uid) == 40);
static_assert(offsetof(PageRecord, parent_uid) == 48);
static_assert(offsetof(PageRecord, position) == 56);
static_assert(offsetof(PageRecord, group) == 60);
static_assert(offsetof(PageRecord, codec) == 64);
static_assert(offsetof(PageRecord, encoded_bytes) == 68);
static_assert(offsetof(PageRecord, stored_bytes) == 72);
static_assert(offsetof(PageRecord, token_count) == 76);
static_assert(offsetof(PageRecord, band_count) == 78);
static_assert(sizeof(PageRecord) == 80);

struct TombstoneRecord {  // the page that had this slot and generation is gone
  RecordHeader header;
  uint32_t slot;
  uint64_t generation;
};
static_assert(offsetof(TombstoneRecord, slot) == 4);
static_assert(offsetof(TombstoneRecord, generation) == 8);
static_assert(sizeof(TombstoneRecord) == 16);

// What the checksum of a page of one band is seeded with: XXH3-64 of this struct. So bytes verify
// only in the slot, store and generation that they were written for, as the page that they are.
struct PageIdentity {
  uint64_t store_id[2];
  uint64_t generation;
  uint64_t key[2];
  uint64_t uid;
  uint64_t parent_uid;
  uint64_t space_hash[2];  // XXH3-128 of the namespace's identity
  uint64_t tokens_hash;    // XXH3-64 of the tokens
  uint32_t slot;
  uint32_t position;
  uint32_t group;
  uint32_t codec;
  uint32_t encoded_bytes;
  uint32_t stored_bytes;
};
static_assert(offsetof(PageIdentity, slot) == 80);
static_assert(sizeof(PageIdentity) == 104);

// Of more than one, each band's is seeded with XXH3-64 of this.
struct BandIdentity {
  uint64_t page;  // XXH3-64 of PageIdentity
  uint32_t band;
  uint32_t band_count;
};
static_assert(offsetof(BandIdentity, band) == 8);
static_assert(sizeof(BandIdentity) == 16);

}  // namespace spillway::io
