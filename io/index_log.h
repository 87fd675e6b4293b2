// The index on disk: a snapshot of all pages, and behind it a journal of what changed since, both
// in one of two regions. When the journal has filled its region, or its state is in doubt, a new
// snapshot goes into the other region; the superblock that names it is written when it is durable.
// So at every moment the newest durable superblock names a region that nothing overwrites.
//
// A write or flush that takes longer than `patience`, or that give_up() cuts short, is an error
// like any other for who waits. But it may still land, and a place that it writes must not be
// written again before: until it has really ended everything here fails with kDeadlineExceeded.
//
// Owner: the store, whose committing coroutine is the only caller: one operation at a time. May die
// before an operation that was given up has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "io/index_block.h"
#include "io/ring.h"
#include "io/store_geometry.h"
#include "runtime/engine_loop.h"
#include "runtime/task.h"

namespace spillway::io {

class IndexLog {
 public:
  struct Parts {
    Ring& ring;  // outlives it, as does the loop
    EngineLoop& loop;
    std::shared_ptr<File> file;
    std::chrono::nanoseconds patience;  // with one write or flush
  };
  // `current`: as read, or of a new file (sequence and epoch 0).
  IndexLog(Parts parts, const Superblock& current);

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
  // Makes durable what was written before to the file, by whomever.
  Task<Result<>> sync();
  // Whoever waits for a write or flush waits no more, now and later.
  void give_up() { given_up_.stop(); }
  // Of the last error of write_snapshot(): it came from a sync.
  bool failed_in_sync() const { return failed_in_sync_; }

  const Superblock& current() const { return current_; }
  // What the next snapshot's blocks will carry; append() continues the current one.
  uint64_t snapshot_id() const { return current_.snapshot_id; }

 private:
  static IndexStamp stamp_of(const Superblock& superblock);
  Task<uint64_t> load_chunk(IndexVisitor& visitor, uint64_t first, SectorBuffer buffer,
                            uint64_t blocks, LoadReport& report);
  Result<Transfer> begin_transfer(std::shared_ptr<void> owner);
  Task<Result<>> write(uint64_t offset, SectorBuffer buffer);
  Task<Result<>> write_superblock_and_sync(Superblock superblock);
  Task<Result<>> make_current_durable();
  uint64_t next_sequence();
  Task<Result<>> write_blocks(const Source& source, const Superblock& next, uint64_t& written);

  Parts parts_;
  std::weak_ptr<void> in_flight_;  // the operation that was begun last, until it has ended
  Superblock current_;
  uint64_t end_ = 0;                  // the journal's, in blocks of the current region
  uint64_t attempts_ = 0;             // at a superblock since the current one
  bool as_found_;                     // the current one was read, and may not be durable
  bool superblock_in_doubt_ = false;  // another than the current one may be durable
  bool failed_in_sync_ = false;
  StopFlag given_up_;
};

}  // namespace spillway::io
