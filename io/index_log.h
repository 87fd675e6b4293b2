// The index on disk: a snapshot of all pages, and behind it a journal of what changed since, both
// in one of two regions. When the journal has filled its region, or its state is in doubt, a new
// snapshot goes into the other region; the superblock that names it is written when it is durable.
// So at every moment the newest durable superblock names a region that nothing overwrites.
//
// Owner: the store, whose committing coroutine is the only caller: one operation at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "io/index_block.h"
#include "io/ring.h"
#include "io/store_geometry.h"
#include "runtime/task.h"

namespace spillway::io {

class IndexLog {
 public:
  // `current`: as read, or of a new file (sequence and epoch 0). `ring` outlives it.
  IndexLog(Ring& ring, std::shared_ptr<File> file, const Superblock& current);

  struct LoadReport {
    uint64_t blocks = 0;          // that were read and belong to the snapshot or its journal
    uint64_t damaged_blocks = 0;  // that should, and do not
    uint64_t bad_records = 0;
  };
  // Visits all records in the order they were written; large reads, until the journal's end.
  Task<LoadReport> load(IndexVisitor& visitor);

  // Whether the journal has room for as many blocks.
  bool has_room(uint64_t blocks) const;
  // Writes `records` behind the journal; a sync makes them durable. After an error what is on disk
  // is in doubt: only a snapshot may follow. REQUIRES: has_room(), !records.empty().
  Task<Result<>> append(IndexPacker& records);

  // Packs more records; false when none is left. Called again and again, with suspensions between.
  using Source = std::function<bool(IndexPacker& into)>;
  // Durable on success. REQUIRES: what `source` packs fits a region (page_index.h).
  Task<Result<>> write_snapshot(Source source, Geometry geometry, uint64_t snapshot_id);
  // Of the last error of write_snapshot(): it came from a sync.
  bool failed_in_sync() const { return failed_in_sync_; }

  const Superblock& current() const { return current_; }
  // What the next snapshot's blocks will carry; append() continues the current one.
  uint64_t snapshot_id() const { return current_.snapshot_id; }

 private:
  static IndexStamp stamp_of(const Superblock& superblock);
  Task<uint64_t> load_chunk(IndexVisitor& visitor, uint64_t first, SectorBuffer buffer,
                            uint64_t blocks, LoadReport& report);
  Task<Result<>> write(uint64_t offset, SectorBuffer buffer);
  Task<Result<>> sync();
  Task<Result<>> write_superblock_and_sync(Superblock superblock);
  Task<Result<>> make_current_durable();
  uint64_t next_sequence();
  Task<Result<>> write_blocks(const Source& source, const Superblock& next, uint64_t& written);

  Ring& ring_;
  const std::shared_ptr<File> file_;
  Superblock current_;
  uint64_t end_ = 0;                  // the journal's, in blocks of the current region
  uint64_t attempts_ = 0;             // at a superblock since the current one
  bool as_found_;                     // the current one was read, and may not be durable
  bool superblock_in_doubt_ = false;  // another than the current one may be durable
  bool failed_in_sync_ = false;
  StopFlag never_;
};

}  // namespace spillway::io
