// Pages of several bands: each is read and verified alone.
#include <gtest/gtest.h>

#include "io/page_bands.h"
#include "io/store_geometry.h"
#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

constexpr uint32_t kPage = 7 * kSectorBytes;
constexpr uint64_t kBytes = 300 * kSectorBytes;
const std::string kPath = "store/pages.kv";

BlockStoreOptions options(uint32_t band_bytes_min = 2 * kSectorBytes) {
  BlockStoreOptions options = store_options(kBytes, {kPage});
  options.band_bytes_min = band_bytes_min;
  return options;
}

TEST(PageBands, cover_the_page_and_end_on_units) {
  for (uint32_t units = 1; units < 200; ++units) {
    const uint32_t bytes = units * kSectorBytes;
    for (const uint32_t least : {4096u, 8192u, 32768u, 1u << 20}) {
      const uint32_t bands = bands_for(bytes, least);
      ASSERT_GE(bands, 1u);
      ASSERT_LE(bands, kPageBandsMax);
      uint32_t at = 0;
      for (uint32_t band = 0; band < bands; ++band) {
        const ByteRange range = bytes_of_bands(bytes, bands, band, band + 1);
        ASSERT_EQ(range.begin, at);
        ASSERT_EQ(range.end % kSectorBytes, 0u);
        if (bands > 1) ASSERT_GE(range.end - range.begin, least / kSectorBytes * kSectorBytes);
        at = range.end;
      }
      ASSERT_EQ(at, bytes);
    }
  }
  EXPECT_EQ(bands_for(368640, 32768), 8u);  // SmolLM2: 30 layers, 46 KiB a band
}

class StoredBands : public testing::Test {
 protected:
  void open(const BlockStoreOptions& with) {
    process_ = std::make_unique<SimProcess>(files_);
    const auto opened = process_->open(with);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
  }
  ~StoredBands() override {
    if (process_ != nullptr && process_->store != nullptr) {
      EXPECT_EQ(process_->store->check_integrity(), "");
    }
  }
  StoredPage put(const TestPage& page) {
    auto stored = process_->put(page);
    EXPECT_TRUE(stored.has_value()) << stored.error().message;
    return *stored;
  }
  // Bands [first, end) of the page, which must be its own bytes where they are served.
  Result<> get(const StoredPage& stored, const TestPage& page, uint32_t first, uint32_t end) {
    const ByteRange range = bytes_of_bands(stored.stored_bytes, stored.bands, first, end);
    const Aligned to(range.end - range.begin);
    auto got = process_->run(process_->store->get_bands(stored.slot, stored.generation, first, end,
                                                        to.span(), to.owner(), process_->stop));
    if (got) {
      const auto own = page.bytes.span().subspan(range.begin, range.end - range.begin);
      EXPECT_TRUE(std::equal(own.begin(), own.end(), to.span().begin()));
    }
    return got;
  }
  uint64_t offset_of(const TestPage& page) {
    const Aligned there(page.bytes.span().size());
    sim::SimImage& image = *files_.find(kPath);
    for (uint64_t at = 0; at + there.span().size() <= image.size(); at += kSectorBytes) {
      image.read(at, there.span());
      if (there == page.bytes) return at;
    }
    ADD_FAILURE() << "the page is nowhere on the disk";
    return 0;
  }

  sim::SimFiles files_;
  std::unique_ptr<SimProcess> process_;
};

TEST_F(StoredBands, any_run_of_them_is_read_also_after_a_restart) {
  open(options());
  const TestPage page(3, kPage);
  ASSERT_EQ(put(page).bands, 3u);
  for (const bool again : {false, true}) {
    if (again) {
      process_->close();
      open(options(4096));  // of pages to come
    }
    const StoredPage stored = process_->visible().at(3);
    EXPECT_EQ(stored.bands, 3u);
    for (uint32_t first = 0; first < 3; ++first) {
      for (uint32_t end = first + 1; end <= 3; ++end) {
        EXPECT_TRUE(get(stored, page, first, end).has_value());
      }
    }
    EXPECT_TRUE(process_->serves(stored, page));
  }
}

// case S1
TEST_F(StoredBands, a_flipped_bit_is_seen_in_its_band_alone) {
  open(options());
  for (uint32_t sector = 0; sector < 7; ++sector) {
    const TestPage page(sector, kPage);
    const StoredPage stored = put(page);
    files_.find(kPath)->flip_bit(offset_of(page) + sector * kSectorBytes + 5, 3);
    for (uint32_t band = 0; band < 3; ++band) {
      const ByteRange range = bytes_of_bands(kPage, 3, band, band + 1);
      const bool hit = range.begin <= sector * kSectorBytes && sector * kSectorBytes < range.end;
      const auto got = get(stored, page, band, band + 1);
      EXPECT_EQ(got.has_value(), !hit);
      if (!hit) continue;
      EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
      break;  // the page is gone
    }
    EXPECT_EQ(get(stored, page, 0, 1).error().code, ErrorCode::kNotFound);
  }
  EXPECT_EQ(process_->store->stats().corrupt, 7u);
}

// case S2: equal bytes in another band do not verify.
TEST_F(StoredBands, a_band_in_the_place_of_another_is_a_miss) {
  open(options(kSectorBytes));
  TestPage page(1, 4 * kSectorBytes);
  const std::vector<std::byte> first(page.bytes.span().begin(),
                                     page.bytes.span().begin() + kSectorBytes);
  const StoredPage stored = put(page);
  ASSERT_EQ(stored.bands, 4u);
  Prng random(1);
  files_.find(kPath)->write(offset_of(page) + kSectorBytes, first, random);
  EXPECT_TRUE(get(stored, page, 0, 1).has_value());
  EXPECT_EQ(get(stored, page, 1, 2).error().code, ErrorCode::kCorrupt);
}

TEST_F(StoredBands, what_a_codec_made_has_one) {
  open(options());
  const TestPage page(1, kPage);
  PagePayload payload = page.payload();
  payload.codec = 1;
  const auto stored =
      process_->run(process_->store->put(page.name(), payload, page.bytes.owner(), process_->stop));
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->bands, 1u);
  EXPECT_TRUE(process_->serves(*stored, page));
}

// case S14: the version before had one band in each page, and is read.
TEST_F(StoredBands, a_store_of_version_one_is_served_and_becomes_one_of_this_version) {
  open(options(kPage));
  const TestPage page(9, kPage);
  ASSERT_EQ(put(page).bands, 1u);
  process_.reset();
  sim::SimImage& image = *files_.find(kPath);
  Prng random(1);
  for (const uint64_t at : {uint64_t{0}, uint64_t{kSectorBytes}}) {
    std::vector<std::byte> sector(kSectorBytes);
    image.read(at, sector);
    auto superblock = read_superblock(sector, image.size());
    ASSERT_TRUE(superblock.has_value());
    superblock->version = 1;
    write_superblock(*superblock, sector);
    image.write(at, sector, random);
  }
  for (const bool again : {false, true}) {
    open(options());
    EXPECT_TRUE(process_->serves(process_->visible().at(9), page)) << again;
    process_.reset();
    uint32_t newest = 0;
    for (const uint64_t at : {uint64_t{0}, uint64_t{kSectorBytes}}) {
      std::vector<std::byte> sector(kSectorBytes);
      image.read(at, sector);
      newest = std::max(newest, read_superblock(sector, image.size())->version);
    }
    EXPECT_EQ(newest, kFormatVersion);
  }
}

}  // namespace
}  // namespace spillway::io
