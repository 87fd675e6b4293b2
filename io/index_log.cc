#include "io/index_log.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::io {
namespace {

constexpr uint64_t kLoadBlocks = 256;  // of one read: 1 MiB
constexpr uint64_t kSliceBlocks = 64;  // of one write of a snapshot: 256 KiB, 0.1 ms of packing

Result<> answer(Result<> done) {
  if (done || done.error().code != ErrorCode::kCancelled) return done;
  return Error{ErrorCode::kDeadlineExceeded, "the disk did not answer before the store was closed"};
}

}  // namespace

IndexLog::IndexLog(Parts parts, const Superblock& current)
    : parts_(std::move(parts)),
      current_(current),
      end_(current.snapshot_blocks),
      as_found_(current.sequence > 0) {}

IndexStamp IndexLog::stamp_of(const Superblock& superblock) {
  IndexStamp stamp;
  stamp.snapshot_id = superblock.snapshot_id;
  stamp.epoch = superblock.epoch;
  stamp.store_id[0] = superblock.store_id[0];
  stamp.store_id[1] = superblock.store_id[1];
  return stamp;
}

// The next snapshot has another snapshot_id, so whatever of this region is not reached here can
// never be read as part of it: to stop at the first chunk without a block loses what a damaged
// mebibyte hides, and brings nothing back.
Task<IndexLog::LoadReport> IndexLog::load(IndexVisitor& visitor) {
  LoadReport report;
  const uint64_t region_blocks = current_.region_bytes / kIndexBlockBytes;
  const SectorBuffer buffer(std::min(region_blocks, kLoadBlocks) * kIndexBlockBytes);
  for (uint64_t first = 0; first < region_blocks; first += kLoadBlocks) {
    const uint64_t blocks = std::min(kLoadBlocks, region_blocks - first);
    const uint64_t found = co_await load_chunk(visitor, first, buffer, blocks, report);
    if (found == 0 && first + blocks > current_.snapshot_blocks) break;
  }
  co_return report;
}

Task<uint64_t> IndexLog::load_chunk(IndexVisitor& visitor, uint64_t first, SectorBuffer buffer,
                                    uint64_t blocks, LoadReport& report) {
  Transfer transfer;
  transfer.file = parts_.file;
  transfer.offset = current_.region_offset[current_.region] + first * kIndexBlockBytes;
  transfer.memory = buffer.first(blocks * kIndexBlockBytes);
  transfer.owner = buffer.owner();
  auto read = co_await parts_.ring.read(std::move(transfer), given_up_);
  if (!read && blocks > 1) {
    // Something in it cannot be read: find what can.
    uint64_t found = 0;
    for (uint64_t i = 0; i < blocks; ++i) {
      found += co_await load_chunk(visitor, first + i, buffer, 1, report);
    }
    co_return found;
  }
  const IndexStamp stamp = stamp_of(current_);
  uint64_t found = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    const auto block = buffer.bytes().subspan(i * kIndexBlockBytes, kIndexBlockBytes);
    const bool valid =
        read && read_index_block(block, stamp, first + i, visitor, report.bad_records);
    if (valid) {
      ++found;
      ++report.blocks;
    } else if (first + i < current_.snapshot_blocks) {
      ++report.damaged_blocks;
    }
  }
  co_return found;
}

bool IndexLog::has_room(uint64_t blocks) const {
  return end_ + blocks <= current_.region_bytes / kIndexBlockBytes;
}

// The operation holds what it gives as owner until it has ended, and so do we know.
Result<Transfer> IndexLog::begin_transfer(std::shared_ptr<void> owner) {
  if (!in_flight_.expired()) {
    return Error{ErrorCode::kDeadlineExceeded,
                 "the disk has not ended an earlier write or flush of the index"};
  }
  Transfer transfer;
  transfer.file = parts_.file;
  transfer.owner = std::make_shared<std::shared_ptr<void>>(std::move(owner));
  transfer.deadline = parts_.loop.clock().now() + parts_.patience;
  in_flight_ = transfer.owner;
  return transfer;
}

Task<Result<>> IndexLog::write(uint64_t offset, SectorBuffer buffer) {
  auto transfer = begin_transfer(buffer.owner());
  if (!transfer) co_return transfer.error();
  transfer->offset = offset;
  transfer->memory = buffer.bytes();
  auto done = co_await parts_.ring.write(std::move(*transfer), given_up_);
  co_return answer(std::move(done));
}

Task<Result<>> IndexLog::append(IndexPacker& records) {
  const uint64_t blocks = records.blocks();
  CHECK(has_room(blocks));
  SectorBuffer sealed = records.seal(stamp_of(current_), end_, blocks);
  const uint64_t offset = current_.region_offset[current_.region] + end_ * kIndexBlockBytes;
  end_ += blocks;
  return write(offset, std::move(sealed));
}

Task<Result<>> IndexLog::write_blocks(const Source& source, const Superblock& next,
                                      uint64_t& written) {
  const uint64_t region_blocks = next.region_bytes / kIndexBlockBytes;
  IndexPacker packer;
  bool more = true;
  while (more) {
    while (more && packer.blocks() <= kSliceBlocks) more = source(packer);
    // The last block stays until it is full, so that a snapshot is as small as it was promised.
    const uint64_t blocks = more ? packer.blocks() - 1 : packer.blocks();
    if (blocks == 0) break;
    CHECK(written + blocks <= region_blocks);
    const uint64_t offset = next.region_offset[next.region] + written * kIndexBlockBytes;
    auto done = co_await write(offset, packer.seal(stamp_of(next), written, blocks));
    if (!done) co_return done.error();
    written += blocks;
  }
  co_return Result<>();
}

Task<Result<>> IndexLog::write_superblock_and_sync(Superblock superblock) {
  SectorBuffer sector(kSectorBytes);
  write_superblock(superblock, sector.bytes());
  superblock_in_doubt_ = true;
  auto done = co_await write(superblock.sequence % kSuperblocks * kSectorBytes, std::move(sector));
  if (!done) co_return done.error();
  done = co_await sync();
  if (done) superblock_in_doubt_ = false;
  co_return done;
}

Task<Result<>> IndexLog::sync() {
  auto transfer = begin_transfer(nullptr);
  failed_in_sync_ = true;
  if (!transfer) co_return transfer.error();
  auto done = co_await parts_.ring.sync(std::move(*transfer), given_up_);
  failed_in_sync_ = !done;
  co_return answer(std::move(done));
}

// The region that this overwrites must not be named by any superblock that may come up after a
// crash, but the newest one's predecessor.
Task<Result<>> IndexLog::make_current_durable() {
  failed_in_sync_ = false;
  if (as_found_) {  // the process before may have been killed before its flush
    auto done = co_await sync();
    if (!done) co_return done.error();
    as_found_ = false;
  }
  if (superblock_in_doubt_) {  // a failed attempt's may be durable or not
    Superblock again = current_;
    again.sequence = next_sequence();
    auto done = co_await write_superblock_and_sync(again);
    if (!done) co_return done.error();
  }
  co_return Result<>();
}

// Higher than any that was tried, and for the place that does not have the current one.
uint64_t IndexLog::next_sequence() { return current_.sequence + 1 + 2 * attempts_++; }

Task<Result<>> IndexLog::write_snapshot(Source source, Geometry geometry, uint64_t snapshot_id) {
  auto done = co_await make_current_durable();
  if (!done) co_return done.error();
  Superblock next = current_;
  next.version = kFormatVersion;
  next.sequence = next_sequence();
  next.epoch += attempts_;
  next.snapshot_id = snapshot_id;
  next.region = 1 - current_.region;
  next.file_bytes = geometry.file_bytes;
  next.area_offset = geometry.area_offset;
  next.area_bytes = geometry.area_bytes;
  uint64_t blocks = 0;
  done = co_await write_blocks(source, next, blocks);
  if (!done) co_return done.error();
  next.snapshot_blocks = static_cast<uint32_t>(blocks);
  done = co_await sync();
  if (!done) co_return done.error();
  done = co_await write_superblock_and_sync(next);
  if (!done) co_return done.error();
  current_ = next;
  end_ = blocks;
  attempts_ = 0;
  co_return Result<>();
}

}  // namespace spillway::io
