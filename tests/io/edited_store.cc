#include "tests/io/edited_store.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "io/store_format.h"
#include "runtime/check.h"
#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

constexpr uint64_t kSectors = 48;
const std::string kPath = "store/pages.kv";

using Image = std::vector<std::byte>;

BlockStoreOptions options() {
  return store_options(kSectors * kSectorBytes, {kSectorBytes, 3 * kSectorBytes});
}

TestPage page_number(uint64_t number) {
  return TestPage(number, (number % 2 == 0 ? 1 : 3) * kSectorBytes,
                  "space " + std::to_string(number % 3));
}

// A store of seven pages and a journal with two tombstones.
Image make_image() {
  sim::SimFiles files;
  {
    SimProcess process(files);
    const bool opened = process.open(options()).has_value();
    CHECK(opened);
    for (uint64_t i = 0; i < 9; ++i) {
      const auto stored = process.put(page_number(i));
      CHECK(stored.has_value());
      if (i < 2) process.store->erase(stored->slot, stored->generation);
    }
  }
  Image image(kSectors * kSectorBytes);
  files.find(kPath)->read(0, image);
  return image;
}

void mend_checksum(std::span<std::byte> sector, bool superblock) {
  const size_t at =
      superblock ? offsetof(Superblock, checksum) : offsetof(IndexBlockHeader, checksum);
  std::memset(sector.data() + at, 0, sizeof(uint64_t));
  const uint64_t checksum = XXH3_64bits(sector.data(), sector.size());
  std::memcpy(sector.data() + at, &checksum, sizeof checksum);
}

void edit(Image& image, std::span<const uint8_t> edits) {
  while (edits.size() >= 5) {
    const uint64_t index = edits[0] % kSectors;
    const size_t at = (edits[1] | edits[2] << 8) % kSectorBytes;
    const size_t length = std::min({size_t{edits[3]}, edits.size() - 5, kSectorBytes - at});
    const auto sector = std::span(image).subspan(index * kSectorBytes, kSectorBytes);
    std::memcpy(sector.data() + at, edits.data() + 5, length);
    if ((edits[4] & 1) != 0) mend_checksum(sector, index < kSuperblocks);
    edits = edits.subspan(5 + length);
  }
}

}  // namespace

EditedStore open_edited_store(std::span<const uint8_t> edits) {
  static const Image original = make_image();
  Image image = original;
  edit(image, edits);
  sim::SimFiles files;
  Prng random(1);
  files.create(kPath)->write(0, image, random);
  SimProcess process(files);
  const bool opened = process.open(options()).has_value();
  CHECK(opened);
  EditedStore result;
  result.new_store = files.all().size() > 1;
  CHECK(process.store->check_integrity().empty());
  CHECK(process.store->stats().file_bytes <= options().bytes);
  std::vector<StoredPage> pages;
  process.store->for_each([&](const StoredPage& page) { pages.push_back(page); });
  result.pages = pages.size();
  for (const StoredPage& stored : pages) {
    const Aligned read(stored.stored_bytes);
    if (!process.get(stored, read)) {
      ++result.wrong;
      continue;
    }
    const TestPage page = page_number(stored.name.key[0] - 1);
    CHECK(read == page.bytes);
    CHECK(stored.name.space == page.space);
    CHECK(std::equal(page.tokens.begin(), page.tokens.end(), stored.name.tokens.begin(),
                     stored.name.tokens.end()));
  }
  process.settle();
  CHECK(process.store->check_integrity().empty());
  for (const StoredPage& stored : pages) process.store->erase(stored.slot, stored.generation);
  const TestPage more(1000, 3 * kSectorBytes);
  const auto put = process.put(more);
  CHECK(put.has_value());
  CHECK(process.serves(*put, more));
  return result;
}

}  // namespace spillway::io
