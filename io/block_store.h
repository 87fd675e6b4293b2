// KV pages on NVMe: slots of bare page bytes in one preallocated file, and an index that says what
// each slot holds. docs/ON_DISK_FORMAT.md gives every offset.
//
// Publish order: the page's bytes, a flush, then its index record; many pages share one flush
// (group commit). A page is visible when its record is durable, whole or not at all (case S8).
// open() reads and checks the index alone; a page's bytes are verified by every read, against a
// checksum seeded with the page's whole identity, slot and generation. What does not verify is a
// miss, is counted, and is never returned (cases S1 to S4).
//
// The store may lose pages; it never returns wrong bytes, and a failing disk never fails a request.
// Owner and thread: the engine's. It decides nothing about eviction: who uses it erases (cache/).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/ring.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/result.h"
#include "runtime/scope.h"
#include "runtime/task.h"
#include "runtime/worker_pool.h"

namespace spillway::io {

enum class SlotId : uint32_t {};

// What a page is: the identity that its checksum is seeded with and its index record holds.
struct PageName {
  std::string_view space;         // the namespace's identity, whole (fingerprint, tenant, salt)
  std::array<uint64_t, 2> key{};  // of the prefix that ends with this page
  // A number that names this prefix among all in the store, and that of the prefix one page shorter
  // (0: this page is the first). By them the tree of prefixes is built again after a restart.
  uint64_t uid = 0, parent_uid = 0;
  uint32_t position = 0;            // pages before it
  uint32_t group = 0;               // layer group
  std::span<const int32_t> tokens;  // of this page; at most kSlotTokensMax
};

inline constexpr uint32_t kSlotTokensMax = 256;

struct PagePayload {
  std::span<std::byte> bytes;  // as stored: a multiple of kSectorBytes, aligned to it
  uint32_t codec = 0;          // of kernels/page_codec.h; 0: the page's own bytes
  uint32_t encoded_bytes = 0;  // meaningful bytes of these
};

struct StoredPage {
  SlotId slot{};
  uint64_t generation = 0;  // of the slot: tells an old tenant of it from a new one
  PageName name;            // points into the store's index: valid until the page is erased
  uint32_t codec = 0;
  uint32_t encoded_bytes = 0;
  uint32_t stored_bytes = 0;  // what a read needs room for
  uint32_t bands = 1;         // page_bands.h
};

// A page that was looked at while nothing else was to do.
struct ScrubbedPage {
  SlotId slot{};
  uint64_t generation = 0;
  uint64_t uid = 0;    // PageName
  uint32_t group = 0;  // the same
  Result<> read{};     // as of get()
  bool lost = false;   // the store does not have it any more
};

struct BlockStoreOptions {
  std::string directory;             // must exist
  uint64_t bytes = 0;                // of the whole file set, index included; never more on disk
  std::vector<uint32_t> slot_bytes;  // size classes, ascending multiples of kSectorBytes
  bool smaller_slots = false;        // classes below each too, for what a codec made smaller
  uint32_t page_tokens = 16;         // of the usual page: sizes the index
  // Pages that no codec made are written in bands of at least so many bytes, so that each can be
  // read alone: what the disk reads at one go as fast as more.
  uint32_t band_bytes_min = 32u << 10;
  std::chrono::nanoseconds read_deadline = std::chrono::seconds(2);
  std::chrono::nanoseconds write_deadline = std::chrono::seconds(10);  // and of each flush
  // What a disk that does not answer may hold up close().
  std::chrono::nanoseconds close_deadline = std::chrono::seconds(3);
  // For tools: the store as it is, whatever its size. kNotFound or kCorrupt instead of making one
  // or setting one aside; `bytes` is not looked at.
  bool existing = false;
  // Where checksums of so many bytes or more are taken: XXH3 goes at about 10 GB/s, so that a fast
  // disk would keep most of the loop's thread busy with them. Empty, or workers that have too much
  // to do: on the loop's thread.
  RunWork run_work{};
  uint32_t elsewhere_bytes_min = 64u << 10;
  std::optional<uint64_t> seed;  // of ids and secret, for simulations that replay; else random
};

struct BlockStoreStats {
  uint64_t capacity_bytes = 0;  // of slots
  uint64_t used_bytes = 0;  // slots that hold, or are being given, a page; exact also after a kill
  uint64_t pages = 0;       // visible
  uint64_t file_bytes = 0;  // of the file set on disk
  uint64_t namespaces = 0;  // that the index knows: of pages, or of some that went lately
  bool direct = false;      // O_DIRECT; else through the page cache, as on tmpfs
  uint64_t corrupt = 0, read_errors = 0, write_errors = 0, flush_errors = 0, deadlines = 0;
  bool read_only = false;  // after ENOSPC or a failed flush that did not heal (case S9)
  std::string why_read_only;
};

class BlockStore {
 public:
  // Opens or makes the store. A superblock that is damaged, hostile or of another version gives a
  // fresh store, with the old file kept aside and a line in the log (case S14). Fails with
  // kUnavailable when another process has it (case S12), kResourceExhausted when the disk has no
  // room for `bytes`, kInvalidArgument when `bytes` holds no page. `loop` and `ring` outlive it.
  // A store of another size is resized; pages beyond a smaller end are lost. Where the disk cannot
  // be written the store opens read-only, if there is one.
  static Task<Result<std::unique_ptr<BlockStore>>> open(BlockStoreOptions options, EngineLoop& loop,
                                                        Ring& ring);
  virtual ~BlockStore() = default;  // REQUIRES: close() has ended, drained()

  // Seeds page keys and namespaces, so that they mean the same after a restart. Made at random with
  // the store.
  virtual uint64_t secret() const = 0;

  // Every visible page, in no order.
  virtual void for_each(const std::function<void(const StoredPage&)>& visit) const = 0;

  // Stores a page and returns when it is visible. Pages put at the same time share their flush and
  // lie next to each other. What `name` points to is valid until put() returns; `owner` keeps the
  // payload (ring.h). kResourceExhausted: no slot of its size is free (erase something: a put waits
  // for slots of erased pages), or the disk is full. kInvalidArgument: no class holds the payload.
  // kIo, kDeadlineExceeded: not stored. After any error the page is not and will not be visible.
  virtual Task<Result<StoredPage>> put(PageName name, PagePayload payload,
                                       std::shared_ptr<void> owner, StopFlag& stop) = 0;
  // Reads and verifies. `to` has stored_bytes. Any error is a miss; kCorrupt and repeated errors
  // have erased the page. kNotFound: the slot has another generation by now.
  virtual Task<Result<>> get(SlotId slot, uint64_t generation, std::span<std::byte> to,
                             std::shared_ptr<void> owner, StopFlag& stop) = 0;
  // The same of bands [first, end) of the page alone (page_bands.h), for which `to` has room.
  virtual Task<Result<>> get_bands(SlotId slot, uint64_t generation, uint32_t first, uint32_t end,
                                   std::span<std::byte> to, std::shared_ptr<void> owner,
                                   StopFlag& stop) = 0;
  // The page is invisible from now on; its slot is free again when no read of it is in flight and
  // no crash can bring the page back as another's.
  virtual void erase(SlotId slot, uint64_t generation) = 0;
  // Pages of this payload size that a put() finds room for, slots of erased pages that it would
  // wait for included: an erase counts at once.
  virtual uint64_t free_slots(uint32_t payload_bytes) const = 0;

  // Verifies one more page of those not verified lately, in the order of their slots; for idle
  // times. Nothing: it has been through all, and begins anew. What was called off is the next one.
  // REQUIRES: no other scrub_one() is under way.
  virtual Task<std::optional<ScrubbedPage>> scrub_one(StopFlag& stop) = 0;

  // Flushes what is pending and awaits all operations, as far as the disk gets by close_deadline:
  // what is durable by then is found again. No call may follow but drained().
  virtual Task<> close() = 0;
  // After close(): no operation names the store any more. It must not die before.
  virtual bool drained() const = 0;
  virtual BlockStoreStats stats() const = 0;
  // Every invariant of the index by a full walk. Empty, or what is wrong.
  virtual std::string check_integrity() const = 0;
};

}  // namespace spillway::io
