// The store's index in memory: which page has which slot, what may be seen, and what must end
// before a slot is free again. Bookkeeping without I/O; page_store.cc does what it says.
//
// A page's life:
//
//   add() -> kWriting -> publish() -> kLive -> erase() -> kErased -> bury() -> kGone -> freed
//               |                                           ^                     ^
//               +------- erase(), its record may be on disk +    drop(), none is -+
//
// Only kLive pages are found. kErased waits until its tombstone, or a snapshot without it, is
// durable: an earlier reuse of the slot could come back after a crash as the old page. kGone waits
// for the operations on its slot.
//
// Owner: the store. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/block_store.h"
#include "io/index_block.h"
#include "io/slot_space.h"
#include "io/store_geometry.h"

namespace spillway::io {

// Checksums of some bands of a page, apart from the index: for any thread.
struct BandSums {
  struct Band {
    uint64_t seed;
    uint32_t bytes;
  };
  std::vector<Band> bands;
  // (band). REQUIRES: `of` has the bytes of these bands.
  std::vector<uint64_t> checksums(std::span<const std::byte> of) const;
};

struct IndexedSpace {  // a namespace
  uint32_t id = 0;
  std::string identity;
  uint64_t hash[2] = {};
  uint64_t pages = 0;
  uint64_t recorded_in = 0;  // the snapshot_id in whose region its record is; 0: none
};

struct IndexedPage {
  enum class State : uint8_t { kWriting, kLive, kErased, kGone };
  State state = State::kWriting;
  bool flushed = false;      // kWriting: its bytes are durable, so that a snapshot may name it
  uint8_t read_errors = 0;   // in a row
  uint32_t operations = 0;   // on its slot, whether or not anyone waits for them
  uint32_t scrubbed_in = 0;  // round of scrubbing in which it last verified
  uint32_t slot = 0;         // first unit
  uint32_t units = 0;
  uint64_t generation = 0;
  uint64_t key[2] = {};
  uint64_t uid = 0, parent_uid = 0;
  uint32_t position = 0, group = 0, codec = 0, encoded_bytes = 0, stored_bytes = 0;
  std::vector<uint64_t> checksums{0};  // (band)
  IndexedSpace* space = nullptr;
  std::vector<int32_t> tokens;
};

class PageIndex {
 public:
  // `slot_bytes`: the size classes; with `smaller_slots` others below each of them.
  PageIndex(const Geometry& geometry, const uint64_t (&store_id)[2],
            const std::vector<uint32_t>& slot_bytes, uint32_t page_tokens, uint32_t band_bytes_min,
            bool smaller_slots = false);

  // Puts a page that was read from the index where it lies. False: it does not fit there.
  bool restore(std::unique_ptr<IndexedPage> page, const IndexedSpace& space);

  // A page in kWriting, without checksums, or null when no slot or no room in the index is free.
  // REQUIRES: has_class(), name.space.size() <= kSpaceBytesMax, name.tokens.size() <=
  // kSlotTokensMax.
  IndexedPage* add(const PageName& name, const PagePayload& payload, uint64_t generation);
  bool has_class(uint64_t payload_bytes) const;
  // Slots that are free, or will be without anything else being erased.
  uint64_t free_slots(uint32_t payload_bytes) const;

  // In any state; null when the slot has another page by now.
  IndexedPage* find(uint32_t slot, uint64_t generation);
  IndexedPage* find_live(uint32_t slot, uint64_t generation);
  // The first page whose slot begins at `slot` or behind it.
  IndexedPage* at_or_behind(uint64_t slot);

  void publish(IndexedPage& page);
  void erase(IndexedPage& page);
  // Both may free the page: it is not to be used after.
  void bury(IndexedPage& page);
  void drop(IndexedPage& page);
  void pin(IndexedPage& page) { ++page.operations; }
  void unpin(IndexedPage& page);

  // Pages whose slots will be free once commits or operations have ended.
  uint64_t leaving() const { return leaving_; }
  uint64_t live() const { return live_; }
  uint64_t used_bytes() const {
    return uint64_t{space_.units() - space_.free_units()} * kUnitBytes;
  }
  uint64_t freed() const { return freed_; }  // slots, since it was made

  // How the bytes of bands [first, end) of a page are summed: seeded with all that the page is, and
  // where.
  BandSums band_sums(const IndexedPage& page, uint32_t first, uint32_t end) const;
  static StoredPage stored_page(const IndexedPage& page);

  void pack(const IndexedPage& page, IndexPacker& into, uint64_t snapshot_id) const;
  // Forgets namespaces that no page names and that the index on disk need not name.
  void forget_unused_spaces();
  uint64_t spaces() const { return spaces_.size(); }

  std::string check_integrity() const;

 private:
  using Pages = std::map<uint32_t, std::unique_ptr<IndexedPage>>;  // by first unit
  struct Classes {
    std::vector<uint32_t> units, runs;
  };
  static Classes classes_of(const std::vector<uint32_t>& slot_bytes, bool smaller_slots);
  PageIndex(const Geometry& geometry, const uint64_t (&store_id)[2], const Classes& classes,
            uint32_t page_tokens, uint32_t band_bytes_min);

  uint64_t band_seed(const IndexedPage& page, uint32_t band) const;
  IndexedSpace* space_named(std::string_view identity);
  static uint32_t record_bytes(const IndexedPage& page) {
    return IndexPacker::page_record_bytes(page.tokens.size(), page.checksums.size());
  }
  // Pages that a codec made have one band.
  uint32_t bands_of(uint32_t codec, uint64_t payload_bytes) const;
  bool index_has_room(uint64_t bytes) const { return index_bytes_ + bytes <= index_bytes_max_; }
  void enter(std::unique_ptr<IndexedPage> page);
  void leave(const IndexedPage& page);
  void free_if_idle(IndexedPage& page);

  const uint64_t store_id_[2];
  const uint32_t page_tokens_;  // of a page of the usual length
  const uint32_t band_bytes_min_;
  const uint64_t index_bytes_max_;  // so that a snapshot always fits its region
  SlotSpace space_;
  SlotSpace space_soon_;  // as space_ will be when all that is leaving has left
  Pages pages_;
  std::unordered_map<std::string_view, std::unique_ptr<IndexedSpace>> spaces_;  // by identity
  uint32_t next_space_id_ = 1;
  uint64_t index_bytes_ = 0;  // of the records of all pages and named spaces
  uint64_t index_bytes_leaving_ = 0;
  uint64_t live_ = 0, leaving_ = 0, freed_ = 0;
};

}  // namespace spillway::io
