#include "io/page_index.h"

#include <xxhash.h>

#include <algorithm>

#include "io/page_bands.h"
#include "runtime/check.h"

namespace spillway::io {
namespace {

using State = IndexedPage::State;

uint32_t units_of(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + kUnitBytes - 1) / kUnitBytes);
}

// Classes below a page's size lie so close that a slot wastes 1.5% of a page on average, and end at
// half of it: the index, planned for whole pages, has room for twice as many.
constexpr uint32_t kClassSteps = 32;
constexpr uint32_t kClassStepsMin = 16;

}  // namespace

PageIndex::Classes PageIndex::classes_of(const std::vector<uint32_t>& slot_bytes,
                                         bool smaller_slots) {
  std::map<uint32_t, uint32_t> run_of;  // by units
  for (uint32_t run = 0; run < slot_bytes.size(); ++run) run_of[units_of(slot_bytes[run])] = run;
  for (uint32_t run = 0; smaller_slots && run < slot_bytes.size(); ++run) {
    for (uint32_t step = kClassStepsMin; step < kClassSteps; ++step) {
      run_of.emplace(units_of(uint64_t{slot_bytes[run]} * step / kClassSteps), run);
    }
  }
  Classes classes;
  for (const auto& [units, run] : run_of) {
    classes.units.push_back(units);
    classes.runs.push_back(run);
  }
  return classes;
}

PageIndex::PageIndex(const Geometry& geometry, const uint64_t (&store_id)[2],
                     const std::vector<uint32_t>& slot_bytes, uint32_t page_tokens,
                     uint32_t band_bytes_min, bool smaller_slots)
    : PageIndex(geometry, store_id, classes_of(slot_bytes, smaller_slots), page_tokens,
                band_bytes_min) {}

PageIndex::PageIndex(const Geometry& geometry, const uint64_t (&store_id)[2],
                     const Classes& classes, uint32_t page_tokens, uint32_t band_bytes_min)
    : store_id_{store_id[0], store_id[1]},
      page_tokens_(page_tokens),
      band_bytes_min_(band_bytes_min),
      // A record starts a new block only where it does not fit: any two neighbouring blocks hold
      // more than one block's room. So half of a region's room always suffices.
      index_bytes_max_(geometry.region_blocks() / 2 * kIndexBlockRoom),
      space_(geometry.area_units(), classes.units, classes.runs),
      space_soon_(geometry.area_units(), classes.units, classes.runs) {}

bool PageIndex::has_class(uint64_t payload_bytes) const {
  return payload_bytes > 0 && space_.class_of(units_of(payload_bytes)).has_value();
}

uint64_t PageIndex::free_slots(uint32_t payload_bytes) const {
  const auto size_class = space_.class_of(units_of(payload_bytes));
  if (!size_class) return 0;
  const uint64_t index_bytes = index_bytes_ - index_bytes_leaving_;
  const uint64_t record = IndexPacker::page_record_bytes(page_tokens_, bands_of(0, payload_bytes));
  const uint64_t records = (index_bytes_max_ - std::min(index_bytes_max_, index_bytes)) / record;
  return std::min(space_soon_.free_slots(*size_class), records);
}

uint32_t PageIndex::bands_of(uint32_t codec, uint64_t payload_bytes) const {
  return codec != 0 ? 1 : bands_for(static_cast<uint32_t>(payload_bytes), band_bytes_min_);
}

IndexedSpace* PageIndex::space_named(std::string_view identity) {
  const auto found = spaces_.find(identity);
  if (found != spaces_.end()) return found->second.get();
  auto space = std::make_unique<IndexedSpace>();
  space->id = next_space_id_++;
  space->identity = identity;
  const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size());
  space->hash[0] = hash.low64;
  space->hash[1] = hash.high64;
  IndexedSpace* added = space.get();
  spaces_.emplace(added->identity, std::move(space));
  return added;
}

IndexedPage* PageIndex::add(const PageName& name, const PagePayload& payload, uint64_t generation) {
  CHECK(name.space.size() <= kSpaceBytesMax);
  CHECK(name.tokens.size() <= kSlotTokensMax);
  const auto size_class = space_.class_of(units_of(payload.bytes.size()));
  CHECK(size_class.has_value());
  const uint32_t bands = bands_of(payload.codec, payload.bytes.size());
  uint64_t index_bytes = IndexPacker::page_record_bytes(name.tokens.size(), bands);
  const auto known = spaces_.find(name.space);
  if (known == spaces_.end() || known->second->pages == 0) {
    index_bytes += IndexPacker::space_record_bytes(name.space.size());
  }
  if (!index_has_room(index_bytes)) return nullptr;
  const auto slot = space_.take(*size_class);
  if (!slot) return nullptr;

  auto page = std::make_unique<IndexedPage>();
  page->slot = *slot;
  page->units = space_.class_units(*size_class);
  page->generation = generation;
  std::copy(name.key.begin(), name.key.end(), page->key);
  page->uid = name.uid;
  page->parent_uid = name.parent_uid;
  page->position = name.position;
  page->group = name.group;
  page->codec = payload.codec;
  page->encoded_bytes = payload.encoded_bytes;
  page->stored_bytes = static_cast<uint32_t>(payload.bytes.size());
  page->space = space_named(name.space);
  page->tokens.assign(name.tokens.begin(), name.tokens.end());
  page->checksums.resize(bands);
  IndexedPage* added = page.get();
  enter(std::move(page));
  return added;
}

bool PageIndex::restore(std::unique_ptr<IndexedPage> page, const IndexedSpace& space) {
  uint64_t index_bytes = record_bytes(*page);
  const auto known = spaces_.find(space.identity);
  if (known == spaces_.end()) {
    index_bytes += IndexPacker::space_record_bytes(space.identity.size());
  }
  if (!index_has_room(index_bytes)) return false;
  if (!space_.claim(page->slot, page->units)) return false;
  page->state = State::kLive;
  page->space = space_named(space.identity);
  ++live_;
  enter(std::move(page));
  return true;
}

void PageIndex::enter(std::unique_ptr<IndexedPage> page) {
  index_bytes_ += record_bytes(*page);
  if (page->space->pages++ == 0) {
    index_bytes_ += IndexPacker::space_record_bytes(page->space->identity.size());
  }
  const bool will_be_free_no_more = space_soon_.claim(page->slot, page->units);
  CHECK(will_be_free_no_more);
  const uint32_t slot = page->slot;
  const bool slot_was_free = pages_.emplace(slot, std::move(page)).second;
  CHECK(slot_was_free);
}

IndexedPage* PageIndex::find(uint32_t slot, uint64_t generation) {
  const auto found = pages_.find(slot);
  if (found == pages_.end() || found->second->generation != generation) return nullptr;
  return found->second.get();
}

IndexedPage* PageIndex::find_live(uint32_t slot, uint64_t generation) {
  IndexedPage* page = find(slot, generation);
  return page != nullptr && page->state == State::kLive ? page : nullptr;
}

IndexedPage* PageIndex::at_or_behind(uint64_t slot) {
  if (slot > UINT32_MAX) return nullptr;
  const auto found = pages_.lower_bound(static_cast<uint32_t>(slot));
  return found == pages_.end() ? nullptr : found->second.get();
}

void PageIndex::publish(IndexedPage& page) {
  CHECK(page.state == State::kWriting);
  CHECK(page.flushed);
  page.state = State::kLive;
  ++live_;
}

void PageIndex::erase(IndexedPage& page) {
  CHECK(page.state == State::kLive || page.state == State::kWriting);
  if (page.state == State::kLive) --live_;
  page.state = State::kErased;
  leave(page);
}

void PageIndex::leave(const IndexedPage& page) {
  ++leaving_;
  index_bytes_leaving_ += record_bytes(page);
  space_soon_.release(page.slot, page.units);
}

void PageIndex::bury(IndexedPage& page) {
  CHECK(page.state == State::kErased);
  page.state = State::kGone;
  free_if_idle(page);
}

void PageIndex::drop(IndexedPage& page) {
  CHECK(page.state == State::kWriting);
  page.state = State::kGone;
  leave(page);
  free_if_idle(page);
}

void PageIndex::unpin(IndexedPage& page) {
  CHECK(page.operations > 0);
  --page.operations;
  free_if_idle(page);
}

void PageIndex::free_if_idle(IndexedPage& page) {
  if (page.state != State::kGone || page.operations > 0) return;
  space_.release(page.slot, page.units);
  index_bytes_ -= record_bytes(page);
  index_bytes_leaving_ -= record_bytes(page);
  CHECK(page.space->pages > 0);
  if (--page.space->pages == 0) {
    index_bytes_ -= IndexPacker::space_record_bytes(page.space->identity.size());
    if (page.space->recorded_in == 0) spaces_.erase(page.space->identity);
  }
  --leaving_;
  ++freed_;
  pages_.erase(page.slot);
}

uint64_t PageIndex::band_seed(const IndexedPage& page, uint32_t band) const {
  PageIdentity identity{};
  std::copy_n(store_id_, 2, identity.store_id);
  identity.generation = page.generation;
  std::copy_n(page.key, 2, identity.key);
  identity.uid = page.uid;
  identity.parent_uid = page.parent_uid;
  std::copy_n(page.space->hash, 2, identity.space_hash);
  identity.tokens_hash =
      XXH3_64bits(page.tokens.data(), page.tokens.size() * sizeof(page.tokens[0]));
  identity.slot = page.slot;
  identity.position = page.position;
  identity.group = page.group;
  identity.codec = page.codec;
  identity.encoded_bytes = page.encoded_bytes;
  identity.stored_bytes = page.stored_bytes;
  const uint64_t seed = XXH3_64bits(&identity, sizeof identity);
  if (page.checksums.size() == 1) return seed;
  const BandIdentity of_band{
      .page = seed, .band = band, .band_count = static_cast<uint32_t>(page.checksums.size())};
  return XXH3_64bits(&of_band, sizeof of_band);
}

BandSums PageIndex::band_sums(const IndexedPage& page, uint32_t first, uint32_t end) const {
  const auto bands = static_cast<uint32_t>(page.checksums.size());
  BandSums sums;
  for (uint32_t band = first; band < end; ++band) {
    const ByteRange range = bytes_of_bands(page.stored_bytes, bands, band, band + 1);
    sums.bands.push_back({band_seed(page, band), range.end - range.begin});
  }
  return sums;
}

std::vector<uint64_t> BandSums::checksums(std::span<const std::byte> of) const {
  std::vector<uint64_t> taken;
  for (const Band& band : bands) {
    taken.push_back(XXH3_64bits_withSeed(of.data(), band.bytes, band.seed));
    of = of.subspan(band.bytes);
  }
  CHECK(of.empty());
  return taken;
}

StoredPage PageIndex::stored_page(const IndexedPage& page) {
  StoredPage stored;
  stored.slot = SlotId{page.slot};
  stored.generation = page.generation;
  stored.name.space = page.space->identity;
  std::copy_n(page.key, 2, stored.name.key.begin());
  stored.name.uid = page.uid;
  stored.name.parent_uid = page.parent_uid;
  stored.name.position = page.position;
  stored.name.group = page.group;
  stored.name.tokens = page.tokens;
  stored.codec = page.codec;
  stored.encoded_bytes = page.encoded_bytes;
  stored.stored_bytes = page.stored_bytes;
  stored.bands = static_cast<uint32_t>(page.checksums.size());
  return stored;
}

void PageIndex::pack(const IndexedPage& page, IndexPacker& into, uint64_t snapshot_id) const {
  if (page.space->recorded_in != snapshot_id) {
    into.add_space(page.space->id, page.space->identity);
    page.space->recorded_in = snapshot_id;
  }
  PageRecord record{};
  record.space = page.space->id;
  record.slot = page.slot;
  record.slot_units = page.units;
  record.generation = page.generation;
  std::copy_n(page.key, 2, record.key);
  record.uid = page.uid;
  record.parent_uid = page.parent_uid;
  record.position = page.position;
  record.group = page.group;
  record.codec = page.codec;
  record.encoded_bytes = page.encoded_bytes;
  record.stored_bytes = page.stored_bytes;
  into.add_page(record, page.checksums, page.tokens);
}

void PageIndex::forget_unused_spaces() {
  std::erase_if(spaces_, [](const auto& entry) { return entry.second->pages == 0; });
}

std::string PageIndex::check_integrity() const {
  if (auto wrong = space_.check_integrity(); !wrong.empty()) return wrong;
  if (auto wrong = space_soon_.check_integrity(); !wrong.empty()) return wrong;
  uint64_t staying = 0, units = 0, live = 0, leaving = 0, index_bytes = 0, end = 0;
  std::map<const IndexedSpace*, uint64_t> pages_in;
  for (const auto& [slot, page] : pages_) {
    if (page->slot != slot) return "a page is filed under another slot";
    if (slot < end) return "two pages share a unit";
    end = uint64_t{slot} + page->units;
    if (end > space_.units()) return "a page lies beyond the end";
    if (page->stored_bytes > uint64_t{page->units} * kUnitBytes) return "a page exceeds its slot";
    if (page->state == State::kGone && page->operations == 0) return "an idle page was not freed";
    units += page->units;
    const bool leaves = page->state == State::kErased || page->state == State::kGone;
    staying += leaves ? 0 : page->units;
    live += page->state == State::kLive ? 1 : 0;
    leaving += leaves ? 1 : 0;
    index_bytes += record_bytes(*page);
    ++pages_in[page->space];
  }
  if (units + space_.free_units() != space_.units()) return "used and free units are not all units";
  if (staying + space_soon_.free_units() != space_.units()) {
    return "the units that will be free are not those of leaving pages";
  }
  if (live != live_) return "the count of visible pages is wrong";
  if (leaving != leaving_) return "the count of leaving pages is wrong";
  for (const auto& [identity, space] : spaces_) {
    const auto found = pages_in.find(space.get());
    if (space->pages != (found == pages_in.end() ? 0 : found->second)) {
      return "a namespace's count of pages is wrong";
    }
    if (space->pages > 0) {
      index_bytes += IndexPacker::space_record_bytes(identity.size());
    }
    pages_in.erase(space.get());
  }
  if (!pages_in.empty()) return "a page names a namespace that is not there";
  if (index_bytes != index_bytes_) return "the index's size is wrong";
  if (index_bytes > index_bytes_max_) return "the index is larger than a snapshot may be";
  return "";
}

}  // namespace spillway::io
