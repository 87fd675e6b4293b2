#include "io/index_loader.h"

#include <algorithm>
#include <vector>

namespace spillway::io {

void IndexLoader::on_space(uint32_t id, std::string_view identity) {
  IndexedSpace& space = spaces_[id];
  space.id = id;
  space.identity = identity;
}

void IndexLoader::on_page(const PageRecord& record, std::span<const uint64_t> checksums,
                          std::span<const int32_t> tokens) {
  const bool can_be = record.stored_bytes > 0 && record.stored_bytes % kSectorBytes == 0 &&
                      record.encoded_bytes <= record.stored_bytes &&
                      checksums.size() <= record.stored_bytes / kUnitBytes &&
                      record.stored_bytes <= uint64_t{record.slot_units} * kUnitBytes &&
                      record.uid <= kUidMax && record.parent_uid <= kUidMax &&
                      spaces_.contains(record.space);
  if (!can_be) {
    ++bad_records_;
    return;
  }
  if (uint64_t{record.slot} + record.slot_units > area_units_) {
    ++left_out_;
    return;
  }
  auto page = std::make_unique<IndexedPage>();
  page->slot = record.slot;
  page->units = record.slot_units;
  page->generation = record.generation;
  std::copy_n(record.key, 2, page->key);
  page->uid = record.uid;
  page->parent_uid = record.parent_uid;
  page->position = record.position;
  page->group = record.group;
  page->codec = record.codec;
  page->encoded_bytes = record.encoded_bytes;
  page->stored_bytes = record.stored_bytes;
  page->checksums.assign(checksums.begin(), checksums.end());
  page->tokens.assign(tokens.begin(), tokens.end());
  pages_[record.slot] = Found{std::move(page), record.space};
}

void IndexLoader::on_tombstone(uint32_t slot, uint64_t generation) {
  const auto found = pages_.find(slot);
  if (found != pages_.end() && found->second.page->generation == generation) pages_.erase(found);
}

void IndexLoader::finish(PageIndex& index) {
  std::vector<Found> found;
  found.reserve(pages_.size());
  for (auto& [slot, page] : pages_) found.push_back(std::move(page));
  pages_.clear();
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.page->slot < b.page->slot; });
  uint64_t end = 0;
  bool overlap = false;
  for (const Found& next : found) {
    overlap = overlap || next.page->slot < end;
    end = uint64_t{next.page->slot} + next.page->units;
  }
  if (overlap) {
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
      return a.page->generation != b.page->generation ? a.page->generation > b.page->generation
                                                      : a.page->slot < b.page->slot;
    });
  }
  for (Found& next : found) {
    if (!index.restore(std::move(next.page), spaces_.at(next.space))) ++left_out_;
  }
}

}  // namespace spillway::io
