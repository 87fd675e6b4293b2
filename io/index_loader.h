// Builds the index in memory from the records on disk, in their order. The records are the world:
// whatever they say, the outcome is an index whose pages lie inside the area and share nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "io/index_block.h"
#include "io/page_index.h"

namespace spillway::io {

class IndexLoader final : public IndexVisitor {
 public:
  // `area_units`: pages beyond are left out.
  explicit IndexLoader(uint32_t area_units) : area_units_(area_units) {}

  void on_space(uint32_t id, std::string_view identity) override;
  void on_page(const PageRecord& record, std::span<const uint64_t> checksums,
               std::span<const int32_t> tokens) override;
  void on_tombstone(uint32_t slot, uint64_t generation) override;

  // Puts the pages that are left into `index`. Of pages that share a unit the one with the highest
  // generation counts: the others' tombstones were lost.
  void finish(PageIndex& index);

  uint64_t left_out() const { return left_out_; }        // pages beyond the area, or in the way
  uint64_t bad_records() const { return bad_records_; }  // that say what cannot be

 private:
  struct Found {
    std::unique_ptr<IndexedPage> page;
    uint32_t space;
  };
  const uint32_t area_units_;
  std::unordered_map<uint32_t, IndexedSpace> spaces_;
  std::unordered_map<uint32_t, Found> pages_;  // by slot
  uint64_t left_out_ = 0, bad_records_ = 0;
};

}  // namespace spillway::io
