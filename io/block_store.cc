// Opening a block store: which file, which superblock, whether it can be kept.
#include "io/block_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "io/index_loader.h"
#include "io/index_log.h"
#include "io/page_store.h"
#include "runtime/check.h"
#include "runtime/log.h"

namespace spillway::io {
namespace {

constexpr const char* kFileName = "/pages.kv";
constexpr const char* kAsideName = "/pages.kv.old";

struct Opener {
  const BlockStoreOptions& options;
  EngineLoop& loop;
  Ring& ring;
  StopFlag never{};

  std::string path() const { return options.directory + kFileName; }
  Result<std::shared_ptr<File>> open_file() {
    return ring.open(path(), {.create = !options.existing, .lock = true});
  }
  Task<Result<Superblock>> read_superblock_at(std::shared_ptr<File> file, uint64_t offset);
  Task<Result<Superblock>> find_superblock(std::shared_ptr<File> file);
  Result<std::shared_ptr<File>> set_aside(std::shared_ptr<File> file, const std::string& why);
  Result<PageStore::Opened> make_new(std::shared_ptr<File> file, const Geometry& geometry);
  Task<PageStore::Opened> load(std::shared_ptr<File> file, Superblock superblock,
                               Geometry geometry);
  Task<Result<PageStore::Opened>> open();
  Task<Result<PageStore::Opened>> find_existing();
  Task<Result<PageStore::Opened>> find_store(Geometry planned);
};

Task<Result<Superblock>> Opener::read_superblock_at(std::shared_ptr<File> file, uint64_t offset) {
  const SectorBuffer sector(kSectorBytes);
  if (file->size() < offset + kSectorBytes) {
    co_return Error{ErrorCode::kCorrupt, "the superblock is cut off"};
  }
  Transfer transfer;
  transfer.file = file;
  transfer.offset = offset;
  transfer.memory = sector.bytes();
  transfer.owner = sector.owner();
  const auto read = co_await ring.read(std::move(transfer), never);
  if (!read) co_return read.error();
  co_return read_superblock(sector.bytes(), file->size());
}

// The one that counts. kNotFound: a new file. kCorrupt, kUnsupported: nothing can be kept.
Task<Result<Superblock>> Opener::find_superblock(std::shared_ptr<File> file) {
  if (file->size() == 0) co_return Error{ErrorCode::kNotFound, "a new file"};
  auto first = co_await read_superblock_at(file, 0);
  auto second = co_await read_superblock_at(file, kSectorBytes);
  // A newer program's superblock counts, though we cannot read what it says.
  if (!first && first.error().code == ErrorCode::kUnsupported) co_return first;
  if (!second && second.error().code == ErrorCode::kUnsupported) co_return second;
  if (first && second) co_return first->sequence > second->sequence ? first : second;
  if (first) co_return first;
  if (second) co_return second;
  // The disk may do better next time: do not throw away what may be whole.
  if (first.error().code == ErrorCode::kIo) co_return first;
  if (second.error().code == ErrorCode::kIo) co_return second;
  // A new store writes the second superblock, then this one, and only then pages.
  if (first.error().code == ErrorCode::kNotFound) co_return first;
  if (second.error().code == ErrorCode::kNotFound) co_return first;
  co_return second;
}

Result<std::shared_ptr<File>> Opener::set_aside(std::shared_ptr<File> file,
                                                const std::string& why) {
  const std::string aside = options.directory + kAsideName;
  const uint64_t bytes = file->size();
  auto renamed = ring.rename(path(), aside);
  if (!renamed) return renamed.error();
  spdlog::warn(
      "store state=new why=\"{}\" kept_aside={} bytes={}: not part of the new store's size; "
      "delete it when you do not need it",
      why, aside, bytes);
  return open_file();
}

Result<PageStore::Opened> Opener::make_new(std::shared_ptr<File> file, const Geometry& geometry) {
  auto allocated = file->allocate(geometry.file_bytes);
  if (!allocated) return allocated.error();
  Entropy entropy(options.seed);
  Superblock superblock{};
  std::copy_n(kSuperblockMagic, sizeof superblock.magic, superblock.magic);
  superblock.version = kFormatVersion;
  superblock.unit_bytes = kUnitBytes;
  superblock.store_id[0] = entropy.next();
  superblock.store_id[1] = entropy.next();
  superblock.secret = entropy.next();
  superblock.file_bytes = geometry.file_bytes;
  std::copy_n(geometry.region_offset, 2, superblock.region_offset);
  superblock.region_bytes = geometry.region_bytes;
  superblock.area_offset = geometry.area_offset;
  superblock.area_bytes = geometry.area_bytes;
  auto index = std::make_unique<PageIndex>(geometry, superblock.store_id, options.slot_bytes,
                                           options.page_tokens, options.band_bytes_min,
                                           options.smaller_slots);
  return PageStore::Opened{std::move(file), superblock, geometry, std::move(index), entropy};
}

Task<PageStore::Opened> Opener::load(std::shared_ptr<File> file, Superblock superblock,
                                     Geometry geometry) {
  const auto begun = loop.clock().now();
  IndexLoader loader(geometry.area_units());
  IndexLog log({ring, loop, file, options.write_deadline}, superblock);
  const auto report = co_await log.load(loader);
  auto index = std::make_unique<PageIndex>(geometry, superblock.store_id, options.slot_bytes,
                                           options.page_tokens, options.band_bytes_min,
                                           options.smaller_slots);
  loader.finish(*index);
  const auto took = std::chrono::duration<double, std::milli>(loop.clock().now() - begun);
  spdlog::info("store state=opened pages={} used_bytes={} capacity_bytes={} index_ms={:.1f}",
               index->live(), index->used_bytes(), geometry.area_bytes, took.count());
  const uint64_t bad_records = report.bad_records + loader.bad_records();
  if (report.damaged_blocks + bad_records + loader.left_out() > 0) {
    spdlog::warn("store damaged_index_blocks={} bad_records={} pages_left_out={}",
                 report.damaged_blocks, bad_records, loader.left_out());
  }
  // From a seed, yet other numbers than the last time's.
  std::optional<uint64_t> seed;
  if (options.seed) seed = *options.seed + superblock.sequence;
  co_return PageStore::Opened{std::move(file), superblock, geometry, std::move(index),
                              Entropy(seed)};
}

Task<Result<PageStore::Opened>> Opener::find_existing() {
  auto file = open_file();
  if (!file) co_return file.error();
  const auto superblock = co_await find_superblock(*file);
  if (!superblock)
    co_return Error{superblock.error().code, path() + ": " + superblock.error().message};
  co_return co_await load(std::move(*file), *superblock, geometry_of(*superblock));
}

Task<Result<PageStore::Opened>> Opener::find_store(Geometry planned) {
  auto file = open_file();
  if (!file) co_return file.error();
  const auto superblock = co_await find_superblock(*file);
  if (!superblock) {
    const Error& error = superblock.error();
    if (error.code == ErrorCode::kIo) co_return error;
    if (error.code != ErrorCode::kNotFound) file = set_aside(std::move(*file), error.message);
    if (!file) co_return file.error();
    co_return make_new(std::move(*file), planned);
  }
  const Geometry old = geometry_of(*superblock);
  Geometry kept = old;
  if (planned.file_bytes != old.file_bytes) {
    const auto resized = resize_geometry(old, planned, options.slot_bytes.back());
    const std::string sizes = "its size goes from " + std::to_string(old.file_bytes) + " to " +
                              std::to_string(planned.file_bytes) + " bytes";
    if (!resized) {
      file = set_aside(std::move(*file), sizes + ", for which its index is too small");
      if (!file) co_return file.error();
      co_return make_new(std::move(*file), planned);
    }
    spdlog::info("store state=resized: {}", sizes);
    kept = *resized;
  }
  // A smaller file is cut only when a superblock says so; a larger one first has its room.
  if ((*file)->size() < kept.file_bytes) {
    auto allocated = (*file)->allocate(kept.file_bytes);
    if (!allocated) co_return allocated.error();
  }
  co_return co_await load(std::move(*file), *superblock, kept);
}

Task<Result<PageStore::Opened>> Opener::open() {
  if (options.existing) co_return co_await find_existing();
  const auto planned = plan_geometry(options.bytes, options.slot_bytes, options.page_tokens);
  if (!planned) co_return planned.error();
  co_return co_await find_store(*planned);
}

}  // namespace

Task<Result<std::unique_ptr<BlockStore>>> BlockStore::open(BlockStoreOptions options,
                                                           EngineLoop& loop, Ring& ring) {
  CHECK(!options.slot_bytes.empty());
  for (size_t i = 0; i < options.slot_bytes.size(); ++i) {
    CHECK(options.slot_bytes[i] > 0);
    CHECK(options.slot_bytes[i] % kSectorBytes == 0);
    CHECK(i == 0 || options.slot_bytes[i - 1] < options.slot_bytes[i]);
  }
  CHECK(options.page_tokens <= kSlotTokensMax);
  CHECK(options.band_bytes_min >= kUnitBytes);
  Opener opener{options, loop, ring};
  auto opened = co_await opener.open();
  if (!opened) co_return opened.error();
  if (options.existing) options.bytes = opened->geometry.file_bytes;
  const std::shared_ptr<File> file = opened->file;
  const bool is_new = opened->superblock.sequence == 0;
  const uint64_t file_bytes = opened->geometry.file_bytes;
  auto store = std::make_unique<PageStore>(options, loop, ring, std::move(*opened));
  auto started = co_await store->start(is_new);
  const bool too_large = file->size() > file_bytes;
  if (started && too_large) started = file->allocate(file_bytes);
  if (!started && (is_new || too_large)) {
    co_await store->close();
    co_return started.error();
  }
  co_return std::unique_ptr<BlockStore>(std::move(store));
}

}  // namespace spillway::io
