// The index on disk, a block at a time: packs records into blocks, and reads blocks of any bytes.
// A block is written once and never again in the life of a snapshot, so its one checksum covers its
// records: torn, it had not been flushed, and none of its records was published.
//
// Pure functions of bytes; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "io/sector_buffer.h"
#include "io/store_format.h"

namespace spillway::io {

// What makes a block part of the current snapshot and its journal, and of no older one.
struct IndexStamp {
  uint64_t snapshot_id = 0;
  uint64_t epoch = 0;
  uint64_t store_id[2] = {};
};

class IndexPacker {
 public:
  void add_space(uint32_t id, std::string_view identity);
  // Lengths and type in `record` are filled in.
  void add_page(PageRecord record, std::span<const uint64_t> checksums,
                std::span<const int32_t> tokens);
  void add_tombstone(uint32_t slot, uint64_t generation);

  uint64_t blocks() const { return bytes_.size() / kIndexBlockBytes; }
  bool empty() const { return bytes_.empty(); }
  // The first `count` blocks, ready to be written as blocks `first_index` and on of a region; the
  // others stay. REQUIRES: 0 < count <= blocks().
  SectorBuffer seal(const IndexStamp& stamp, uint64_t first_index, uint64_t count);

  // What a record takes, block borders aside.
  static uint32_t page_record_bytes(size_t tokens, size_t bands);
  static uint32_t space_record_bytes(size_t identity_bytes);

 private:
  std::byte* append(uint32_t bytes);

  std::vector<std::byte> bytes_;  // whole blocks
  uint32_t used_ = 0;             // record bytes in the last one
  uint32_t records_ = 0;          // in the last one
};

class IndexVisitor {
 public:
  virtual void on_space(uint32_t id, std::string_view identity) = 0;
  // `checksums` has record.band_count of them, 1 to kPageBandsMax; `tokens` record.token_count,
  // read or not by the caller's leave.
  virtual void on_page(const PageRecord& record, std::span<const uint64_t> checksums,
                       std::span<const int32_t> tokens) = 0;
  virtual void on_tombstone(uint32_t slot, uint64_t generation) = 0;

 protected:
  ~IndexVisitor() = default;
};

// Visits the records of a block in order. False, with nothing visited, when the block is not the
// `index`-th of this snapshot. Records that cannot be are left out and counted in `bad_records`;
// places and sizes of pages are for the visitor to judge.
bool read_index_block(std::span<const std::byte> block, const IndexStamp& stamp, uint64_t index,
                      IndexVisitor& visitor, uint64_t& bad_records);

}  // namespace spillway::io
