// Superblocks, index blocks and slots, whatever their bytes say.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>

#include "io/index_block.h"
#include "io/index_loader.h"
#include "io/page_index.h"
#include "io/slot_space.h"
#include "io/store_geometry.h"
#include "tests/io/edited_store.h"

namespace spillway::io {
namespace {

using Sector = std::vector<std::byte>;

Superblock good_superblock(uint64_t bytes) {
  const Geometry geometry = *plan_geometry(bytes, std::vector<uint32_t>{8192}, 16);
  Superblock superblock{};
  std::copy_n(kSuperblockMagic, sizeof superblock.magic, superblock.magic);
  superblock.version = kFormatVersion;
  superblock.unit_bytes = kUnitBytes;
  superblock.sequence = 5;
  superblock.epoch = 3;
  superblock.file_bytes = geometry.file_bytes;
  std::copy_n(geometry.region_offset, 2, superblock.region_offset);
  superblock.region_bytes = geometry.region_bytes;
  superblock.area_offset = geometry.area_offset;
  superblock.area_bytes = geometry.area_bytes;
  return superblock;
}

TEST(store_format, a_superblock_comes_back_and_no_flipped_bit_passes) {
  Sector sector(kSectorBytes);
  const Superblock written = good_superblock(1 << 20);
  write_superblock(written, sector);
  const auto read = read_superblock(sector, 1 << 20);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->region_bytes, written.region_bytes);
  for (size_t bit = 0; bit < kSectorBytes * 8; bit += 5) {
    sector[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(read_superblock(sector, 1 << 20)) << bit;
    sector[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  EXPECT_EQ(read_superblock(sector, (1 << 20) - kSectorBytes).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(read_superblock(Sector(kSectorBytes), 1 << 20).error().code, ErrorCode::kNotFound);
}

TEST(store_format, another_version_is_told_from_damage) {
  Sector sector(kSectorBytes);
  Superblock newer = good_superblock(1 << 20);
  newer.version = kFormatVersion + 1;
  write_superblock(newer, sector);
  const auto read = read_superblock(sector, 1 << 20);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(read.error().message.find("version " + std::to_string(kFormatVersion + 1)),
            std::string::npos);
}

// case S14: any field may be anything under a checksum that is right.
TEST(store_format, an_accepted_superblock_lies_inside_its_file) {
  EXPECT_TRUE(rc::check([] {
    const uint64_t bytes = 1 << 20;
    Superblock superblock = good_superblock(bytes);
    uint64_t* const fields[] = {&superblock.sequence,         &superblock.epoch,
                                &superblock.file_bytes,       &superblock.region_offset[0],
                                &superblock.region_offset[1], &superblock.region_bytes,
                                &superblock.area_offset,      &superblock.area_bytes};
    const auto which = *rc::gen::inRange(0, 8);
    const uint64_t odd = *rc::gen::elementOf(
        std::vector<uint64_t>{0, 1, 4095, 4096, 8192, bytes - 4096, bytes, bytes + 4096,
                              uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX - 4095, UINT64_MAX});
    *fields[which] = odd + 4096 * *rc::gen::inRange<uint64_t>(0, 3);
    superblock.region = *rc::gen::inRange(0u, 4u);
    Sector sector(kSectorBytes);
    write_superblock(superblock, sector);
    const auto read = read_superblock(sector, bytes);
    if (!read) return;
    RC_ASSERT(read->region <= 1u);
    for (const uint64_t offset : read->region_offset) {
      RC_ASSERT(offset >= 2 * kSectorBytes);
      RC_ASSERT(offset < bytes && read->region_bytes <= bytes - offset);
    }
    RC_ASSERT(read->area_offset <= bytes && read->area_bytes <= bytes - read->area_offset);
  }));
}

struct Collected final : IndexVisitor {
  void on_space(uint32_t id, std::string_view identity) override { spaces.emplace(id, identity); }
  void on_page(const PageRecord& record, std::span<const uint64_t> of_bands,
               std::span<const int32_t> tokens) override {
    slots.push_back(record.slot);
    checksums += std::accumulate(of_bands.begin(), of_bands.end(), uint64_t{0});
    token_count += tokens.size();
  }
  void on_tombstone(uint32_t slot, uint64_t generation) override {
    tombstones.emplace(slot, generation);
  }
  std::set<std::pair<uint32_t, std::string>> spaces;
  std::vector<uint32_t> slots;
  std::set<std::pair<uint32_t, uint64_t>> tombstones;
  uint64_t checksums = 0, token_count = 0;
};

TEST(store_format, records_come_back_in_order_and_only_from_their_own_snapshot) {
  IndexPacker packer;
  packer.add_space(7, "a namespace");
  const std::vector<int32_t> tokens(16, 3);
  for (uint32_t i = 0; i < 100; ++i) {
    PageRecord record{};
    record.slot = i;
    // One checksum, or three.
    const std::vector<uint64_t> of_bands(i % 50 == 0 ? 3 : 1, i % 50 == 0 ? 500 : 1000);
    packer.add_page(record, of_bands, tokens);
  }
  packer.add_tombstone(5, 6);
  const uint64_t blocks = packer.blocks();
  EXPECT_EQ(blocks, 4u);  // 26 pages a block
  IndexStamp stamp;
  stamp.snapshot_id = 11;
  stamp.epoch = 2;
  const SectorBuffer sealed = packer.seal(stamp, 40, blocks);
  Collected all;
  uint64_t bad = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    const auto block = sealed.bytes().subspan(i * kIndexBlockBytes, kIndexBlockBytes);
    for (const auto& [id, epoch, index] :
         {std::tuple(12u, 2u, 40 + i), std::tuple(11u, 1u, 40 + i), std::tuple(11u, 2u, 41 + i)}) {
      IndexStamp other = stamp;
      other.snapshot_id = id;
      other.epoch = epoch;
      EXPECT_FALSE(read_index_block(block, other, index, all, bad));
    }
    ASSERT_TRUE(read_index_block(block, stamp, 40 + i, all, bad));
    block[777] ^= std::byte{4};
    EXPECT_FALSE(read_index_block(block, stamp, 40 + i, all, bad));
  }
  EXPECT_EQ(bad, 0u);
  ASSERT_EQ(all.slots.size(), 100u);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(all.slots[i], i);
  EXPECT_EQ(all.checksums, 101'000u);
  EXPECT_EQ(all.token_count, 1600u);
  EXPECT_TRUE(all.spaces.contains({7, "a namespace"}));
  EXPECT_TRUE(all.tombstones.contains({5, 6}));
}

TEST(store_format, a_record_never_reaches_beyond_its_block) {
  IndexPacker packer;
  packer.add_tombstone(1, 1);
  packer.add_space(1, std::string(3000, 'x'));
  packer.add_space(2, std::string(3000, 'x'));
  const SectorBuffer sealed = packer.seal({}, 0, 2);
  // The first record of each block begins at the same place; let the first claim to end there.
  const auto block = sealed.bytes().first(kIndexBlockBytes);
  const uint16_t length = kIndexBlockBytes;
  std::memcpy(&block[sizeof(IndexBlockHeader) + offsetof(RecordHeader, bytes)], &length,
              sizeof length);
  std::memset(&block[offsetof(IndexBlockHeader, checksum)], 0, sizeof(uint64_t));
  const uint64_t checksum = XXH3_64bits(block.data(), block.size());
  std::memcpy(&block[offsetof(IndexBlockHeader, checksum)], &checksum, sizeof checksum);
  Collected all;
  uint64_t bad = 0;
  EXPECT_TRUE(read_index_block(block, {}, 0, all, bad));
  EXPECT_EQ(bad, 1u);
  EXPECT_TRUE(all.spaces.empty());
}

// What the bytes of a band are summed with: two seeds that differ make equal bytes differ.
uint64_t seed_of(const PageIndex& index, const IndexedPage& page, uint32_t band = 0) {
  return index.band_sums(page, band, band + 1).bands.front().seed;
}

// cases S2 and S3: equal bytes in another place, or as another page, do not verify.
TEST(store_format, a_checksum_holds_for_one_page_in_one_slot_of_one_store) {
  const Geometry geometry = *plan_geometry(1 << 20, std::vector<uint32_t>{16384}, 16);
  const uint64_t ids[2] = {1, 2};
  const PageIndex index(geometry, ids, {16384}, 16, 4096);
  IndexedSpace space;
  space.hash[0] = 5;
  IndexedSpace other_space;
  other_space.hash[0] = 6;
  IndexedPage page;
  page.space = &space;
  page.tokens = {1, 2, 3};
  page.stored_bytes = 16384;
  std::set<uint64_t> seeds{seed_of(index, page)};
  const std::vector<std::function<void(IndexedPage&)>> changes{
      [](IndexedPage& changed) { ++changed.slot; },
      [](IndexedPage& changed) { ++changed.generation; },
      [](IndexedPage& changed) { ++changed.key[0]; },
      [](IndexedPage& changed) { ++changed.key[1]; },
      [](IndexedPage& changed) { ++changed.uid; },
      [](IndexedPage& changed) { ++changed.parent_uid; },
      [](IndexedPage& changed) { ++changed.position; },
      [](IndexedPage& changed) { ++changed.group; },
      [](IndexedPage& changed) { ++changed.codec; },
      [](IndexedPage& changed) { ++changed.encoded_bytes; },
      [](IndexedPage& changed) { changed.stored_bytes += 4096; },
      [](IndexedPage& changed) { ++changed.tokens[1]; },
      [](IndexedPage& changed) { changed.tokens.pop_back(); },
      [&](IndexedPage& changed) { changed.space = &other_space; },
      [](IndexedPage& changed) { changed.checksums = {0, 0}; },
      [](IndexedPage& changed) { changed.checksums = {0, 0, 0}; },
  };
  for (const auto& change : changes) {
    IndexedPage changed = page;
    change(changed);
    EXPECT_TRUE(seeds.insert(seed_of(index, changed)).second);
  }
  for (const uint32_t bands : {2u, 3u}) {
    IndexedPage changed = page;
    changed.checksums.resize(bands);
    for (uint32_t band = 1; band < bands; ++band) {
      EXPECT_TRUE(seeds.insert(seed_of(index, changed, band)).second);
    }
  }
  for (const int which : {0, 1}) {
    uint64_t other_ids[2] = {1, 2};
    ++other_ids[which];
    const PageIndex other(geometry, other_ids, {16384}, 16, 4096);
    EXPECT_TRUE(seeds.insert(seed_of(other, page)).second);
  }
}

// Where a tombstone was lost: the later page has the units, wherever it begins.
TEST(store_format, of_pages_that_overlap_the_latest_stays) {
  const Geometry geometry = *plan_geometry(1 << 20, std::vector<uint32_t>{8192}, 16);
  const uint64_t ids[2] = {1, 2};
  const std::vector<uint64_t> one(1);
  for (const bool later_is_behind : {false, true}) {
    IndexLoader loader(geometry.area_units());
    loader.on_space(1, "space");
    PageRecord record{};
    record.space = 1;
    record.stored_bytes = 2 * kSectorBytes;
    record.slot_units = 2;
    record.slot = 10;
    record.generation = later_is_behind ? 5 : 6;
    loader.on_page(record, one, {});
    record.slot = 11;
    record.generation = later_is_behind ? 6 : 5;
    loader.on_page(record, one, {});
    record.slot = geometry.area_units() - 1;  // half outside
    loader.on_page(record, one, {});
    record.slot = UINT32_MAX;  // and where the sum wraps
    loader.on_page(record, one, {});
    PageIndex index(geometry, ids, {8192}, 16, 4096);
    loader.finish(index);
    EXPECT_EQ(index.check_integrity(), "");
    EXPECT_EQ(index.live(), 1u);
    EXPECT_EQ(loader.left_out(), 3u);
    EXPECT_NE(index.find_live(later_is_behind ? 11 : 10, 6), nullptr);
  }
}

// Numbers of pages only go up, and none may come round to 0, which means a root.
TEST(store_format, a_record_with_a_number_near_the_last_of_all_is_no_page) {
  const Geometry geometry = *plan_geometry(1 << 20, std::vector<uint32_t>{8192}, 16);
  const std::vector<uint64_t> one(1);
  IndexLoader loader(geometry.area_units());
  loader.on_space(1, "space");
  for (const uint64_t uid : {uint64_t{7}, kUidMax, kUidMax + 1, UINT64_MAX}) {
    for (const bool parent : {false, true}) {
      PageRecord record{};
      record.space = 1;
      record.stored_bytes = 2 * kSectorBytes;
      record.slot_units = 2;
      record.generation = 1;
      (parent ? record.parent_uid : record.uid) = uid;
      const uint64_t bad = loader.bad_records();
      loader.on_page(record, one, {});
      EXPECT_EQ(loader.bad_records() - bad, uid > kUidMax ? 1u : 0u) << uid;
    }
  }
}

TEST(store_format, slots_are_the_free_units_that_a_plain_map_says) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<uint32_t> classes{2, 3, 7};
    SlotSpace space(60, classes);
    std::vector<bool> taken(60, false);
    std::vector<std::pair<uint32_t, uint32_t>> slots;
    for (const auto command :
         *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 60000u))) {
      const uint32_t amount = command / 4;
      if (command % 4 == 0 && !slots.empty()) {
        const auto chosen = slots.begin() + amount % slots.size();
        space.release(chosen->first, chosen->second);
        for (uint32_t i = 0; i < chosen->second; ++i) taken[chosen->first + i] = false;
        slots.erase(chosen);
      } else if (command % 4 == 1) {
        const uint32_t first = amount % 64, units = 1 + amount % 9;
        bool is_free = first + units <= 60;
        for (uint32_t i = first; is_free && i < first + units; ++i) is_free = !taken[i];
        RC_ASSERT(space.claim(first, units) == is_free);
        if (is_free) slots.emplace_back(first, units);
        for (uint32_t i = first; is_free && i < first + units; ++i) taken[i] = true;
      } else {
        const uint32_t size_class = amount % 3, units = classes[size_class];
        const uint64_t room = space.free_slots(size_class);
        const auto first = space.take(size_class);
        RC_ASSERT(first.has_value() == (room > 0));
        if (!first) continue;
        for (uint32_t i = 0; i < units; ++i) {
          RC_ASSERT(!taken.at(*first + i));
          taken[*first + i] = true;
        }
        slots.emplace_back(*first, units);
      }
      RC_ASSERT(space.check_integrity() == "");
      RC_ASSERT(space.free_units() ==
                static_cast<uint64_t>(std::count(taken.begin(), taken.end(), false)));
    }
  }));
}

TEST(store_format, two_classes_that_take_turns_still_lie_in_runs) {
  SlotSpace space(10'000, {3, 7});
  uint32_t neighbours = 0, last[2] = {};
  for (uint32_t i = 0; i < 400; ++i) {
    const uint32_t size_class = i % 2;
    const uint32_t first = *space.take(size_class);
    neighbours += first == last[size_class] + space.class_units(size_class) ? 1 : 0;
    last[size_class] = first;
  }
  EXPECT_GT(neighbours, 390u);
}

TEST(store_format, classes_of_one_run_follow_one_another_apart_from_other_runs) {
  SlotSpace space(10'000, {3, 6, 7}, {0, 1, 1});
  uint32_t end[2] = {0, 0}, neighbours = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    const uint32_t size_class = i % 3, run = size_class == 0 ? 0 : 1;
    const uint32_t first = *space.take(size_class);
    neighbours += first == end[run] ? 1 : 0;
    end[run] = first + space.class_units(size_class);
  }
  EXPECT_GT(neighbours, 290u);
}

// A store that is full is one of single holes: a page that fits one exactly must not break another.
TEST(store_format, among_small_holes_the_one_that_fits_best_is_taken) {
  SlotSpace space(50, {5, 6, 7}, {0, 0, 0});
  for (const uint32_t first : {0, 8, 17}) ASSERT_TRUE(space.claim(first, first == 17 ? 33 : 1));
  // Holes of 7, 8 units at 1 and 9.
  EXPECT_EQ(*space.take(2), 1u);
  EXPECT_EQ(*space.take(2), 9u);
  EXPECT_EQ(space.take(0), std::nullopt);
  space.release(1, 7);
  EXPECT_EQ(*space.take(1), 1u);
}

// case S14: fuzz/block_store_fuzz.cc looks deeper.
TEST(store_format, edits_of_a_stores_file_never_give_a_wrong_page) {
  EXPECT_EQ(open_edited_store({}).pages, 7u);
  EXPECT_EQ(open_edited_store({}).wrong, 0u);
  EXPECT_TRUE(rc::check([] {
    auto edits = *rc::gen::container<std::vector<uint8_t>>(rc::gen::arbitrary<uint8_t>());
    for (size_t at = 0; at + 5 <= edits.size();) {
      edits[at] %= 20;  // superblocks and index, mostly
      edits[at + 3] %= 12;
      at += 5 + edits[at + 3];
    }
    const EditedStore after = open_edited_store(edits);
    RC_CLASSIFY(after.new_store, "set aside");
    RC_CLASSIFY(after.pages < 7, "pages lost");
    RC_CLASSIFY(after.wrong > 0, "pages that do not verify");
  }));
}

TEST(store_format, the_fuzzers_seeds_give_no_wrong_page) {
  uint64_t seeds = 0, set_aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator("fuzz/corpus/block_store_fuzz")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const std::vector<uint8_t> edits(bytes.begin(), bytes.end());
    set_aside += open_edited_store(edits).new_store ? 1 : 0;
    ++seeds;
  }
  EXPECT_GE(seeds, 16u);
  EXPECT_GE(set_aside, 2u);
}

}  // namespace
}  // namespace spillway::io
