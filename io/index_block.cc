#include "io/index_block.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "io/block_store.h"
#include "io/page_bands.h"
#include "runtime/check.h"

namespace spillway::io {
namespace {

uint32_t round_up_8(size_t bytes) { return static_cast<uint32_t>((bytes + 7) / 8 * 8); }

uint64_t block_checksum(std::span<const std::byte> block) {
  std::byte copy[kIndexBlockBytes];
  std::memcpy(copy, block.data(), sizeof copy);
  std::memset(copy + offsetof(IndexBlockHeader, checksum), 0, sizeof(uint64_t));
  return XXH3_64bits(copy, sizeof copy);
}

template <class Record>
bool load(std::span<const std::byte> bytes, Record& record) {
  if (bytes.size() < sizeof record) return false;
  std::memcpy(&record, bytes.data(), sizeof record);
  return true;
}

bool visit_space(std::span<const std::byte> bytes, IndexVisitor& visitor) {
  SpaceRecord record;
  if (!load(bytes, record)) return false;
  if (record.identity_bytes > kSpaceBytesMax) return false;
  if (IndexPacker::space_record_bytes(record.identity_bytes) != bytes.size()) return false;
  const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof record);
  visitor.on_space(record.id, {text, record.identity_bytes});
  return true;
}

bool visit_page(std::span<const std::byte> bytes, IndexVisitor& visitor) {
  PageRecord record;
  if (!load(bytes, record)) return false;
  if (record.token_count > kSlotTokensMax) return false;
  const size_t bands = record.band_count;
  if (bands == 0 || bands > kPageBandsMax) return false;
  if (IndexPacker::page_record_bytes(record.token_count, bands) != bytes.size()) return false;
  const std::byte* at = bytes.data() + sizeof record;
  uint64_t checksums[kPageBandsMax];
  std::memcpy(checksums, at, bands * sizeof(uint64_t));
  at += bands * sizeof(uint64_t);
  int32_t tokens[kSlotTokensMax];
  std::memcpy(tokens, at, record.token_count * sizeof(int32_t));
  visitor.on_page(record, {checksums, bands}, {tokens, record.token_count});
  return true;
}

bool visit_record(std::span<const std::byte> bytes, IndexVisitor& visitor) {
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  switch (static_cast<RecordType>(header.type)) {
    case RecordType::kSpace:
      return visit_space(bytes, visitor);
    case RecordType::kPage:
      return visit_page(bytes, visitor);
    case RecordType::kTombstone: {
      TombstoneRecord record;
      if (bytes.size() != sizeof record || !load(bytes, record)) return false;
      visitor.on_tombstone(record.slot, record.generation);
      return true;
    }
  }
  return false;
}

}  // namespace

uint32_t IndexPacker::page_record_bytes(size_t tokens, size_t bands) {
  return round_up_8(sizeof(PageRecord) + bands * sizeof(uint64_t) + tokens * sizeof(int32_t));
}

uint32_t IndexPacker::space_record_bytes(size_t identity_bytes) {
  return round_up_8(sizeof(SpaceRecord) + identity_bytes);
}

std::byte* IndexPacker::append(uint32_t bytes) {
  CHECK(bytes % 8 == 0);
  CHECK(bytes <= kIndexBlockRoom);
  if (bytes_.empty() || used_ + bytes > kIndexBlockRoom) {
    bytes_.resize(bytes_.size() + kIndexBlockBytes);
    used_ = records_ = 0;
  }
  std::byte* block = bytes_.data() + bytes_.size() - kIndexBlockBytes;
  std::byte* record = block + sizeof(IndexBlockHeader) + used_;
  used_ += bytes;
  ++records_;
  IndexBlockHeader header{};
  header.magic = kIndexBlockMagic;
  header.record_bytes = used_;
  header.records = records_;
  std::memcpy(block, &header, sizeof header);
  return record;
}

void IndexPacker::add_space(uint32_t id, std::string_view identity) {
  CHECK(identity.size() <= kSpaceBytesMax);
  SpaceRecord record{};
  record.header.type = static_cast<uint16_t>(RecordType::kSpace);
  record.header.bytes = static_cast<uint16_t>(space_record_bytes(identity.size()));
  record.id = id;
  record.identity_bytes = static_cast<uint32_t>(identity.size());
  std::byte* at = append(record.header.bytes);
  std::memcpy(at, &record, sizeof record);
  std::memcpy(at + sizeof record, identity.data(), identity.size());
}

void IndexPacker::add_page(PageRecord record, std::span<const uint64_t> checksums,
                           std::span<const int32_t> tokens) {
  CHECK(tokens.size() <= kSlotTokensMax);
  CHECK(!checksums.empty());
  CHECK(checksums.size() <= kPageBandsMax);
  record.header.type = static_cast<uint16_t>(RecordType::kPage);
  record.header.bytes = static_cast<uint16_t>(page_record_bytes(tokens.size(), checksums.size()));
  record.token_count = static_cast<uint16_t>(tokens.size());
  record.band_count = static_cast<uint16_t>(checksums.size());
  std::byte* at = append(record.header.bytes);
  std::memcpy(at, &record, sizeof record);
  std::memcpy(at + sizeof record, checksums.data(), checksums.size_bytes());
  std::copy_n(reinterpret_cast<const std::byte*>(tokens.data()), tokens.size_bytes(),
              at + sizeof record + checksums.size_bytes());
}

void IndexPacker::add_tombstone(uint32_t slot, uint64_t generation) {
  TombstoneRecord record{};
  record.header.type = static_cast<uint16_t>(RecordType::kTombstone);
  record.header.bytes = sizeof record;
  record.slot = slot;
  record.generation = generation;
  std::memcpy(append(sizeof record), &record, sizeof record);
}

SectorBuffer IndexPacker::seal(const IndexStamp& stamp, uint64_t first_index, uint64_t count) {
  CHECK(count > 0);
  CHECK(count <= blocks());
  SectorBuffer sealed(count * kIndexBlockBytes);
  const auto end = bytes_.begin() + static_cast<ptrdiff_t>(sealed.bytes().size());
  std::copy(bytes_.begin(), end, sealed.bytes().begin());
  for (uint64_t i = 0; i < count; ++i) {
    const auto block = sealed.bytes().subspan(i * kIndexBlockBytes, kIndexBlockBytes);
    IndexBlockHeader header;
    std::memcpy(&header, block.data(), sizeof header);
    header.snapshot_id = stamp.snapshot_id;
    header.epoch = stamp.epoch;
    header.index = first_index + i;
    header.store_id[0] = stamp.store_id[0];
    header.store_id[1] = stamp.store_id[1];
    std::memcpy(block.data(), &header, sizeof header);
    header.checksum = XXH3_64bits(block.data(), block.size());
    std::memcpy(block.data(), &header, sizeof header);
  }
  bytes_.erase(bytes_.begin(), end);
  if (bytes_.empty()) used_ = records_ = 0;
  return sealed;
}

bool read_index_block(std::span<const std::byte> block, const IndexStamp& stamp, uint64_t index,
                      IndexVisitor& visitor, uint64_t& bad_records) {
  CHECK(block.size() == kIndexBlockBytes);
  IndexBlockHeader header;
  std::memcpy(&header, block.data(), sizeof header);
  if (header.magic != kIndexBlockMagic || header.index != index) return false;
  if (header.snapshot_id != stamp.snapshot_id || header.epoch != stamp.epoch) return false;
  if (header.store_id[0] != stamp.store_id[0]) return false;
  if (header.store_id[1] != stamp.store_id[1]) return false;
  if (header.record_bytes > kIndexBlockRoom) return false;
  if (block_checksum(block) != header.checksum) return false;
  auto rest = block.subspan(sizeof header, header.record_bytes);
  while (rest.size() >= sizeof(RecordHeader)) {
    RecordHeader record;
    std::memcpy(&record, rest.data(), sizeof record);
    // Without a length that can be, the rest of the block has no meaning.
    if (record.bytes < 8 || record.bytes % 8 != 0 || record.bytes > rest.size()) break;
    if (!visit_record(rest.first(record.bytes), visitor)) ++bad_records;
    rest = rest.subspan(record.bytes);
  }
  if (!rest.empty()) ++bad_records;
  return true;
}

}  // namespace spillway::io
