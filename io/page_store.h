// The block store over a ring: page_index.h says what is where, index_log.h keeps that on disk, and
// this does the transfers. Reads wait for nobody. Writes end in one committing coroutine, which
// lets everything that is ready share a flush:
//
//   sync              makes durable: bytes of new pages, and the records written in the last round
//   publish           those pages; free the slots of those tombstones
//   append            the records of the new pages, and tombstones; the next round's sync is theirs
//
// So a page takes two rounds, and under load each round costs one flush. Sketch: a 360 KiB page
// costs one write, 152 bytes of record and a share of a flush; 1 GB/s of pages is 2,700 a second,
// of which the checksums take 10% of a core, a worker's where there are workers, and all else about
// 1%.
//
// After a failed flush nothing since the last good one counts, and the next commit is a snapshot of
// what was durable before (case S10). While that fails too the store is read-only, and a put is let
// through every kProbeInterval to try again (case S9). A flush or a write of the index that the
// disk does not end in time is a failed one, and until it has ended the store stays read-only
// (S11).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/block_store.h"
#include "io/entropy.h"
#include "io/index_log.h"
#include "io/page_index.h"

namespace spillway::io {

class PageStore final : public BlockStore {
 public:
  static constexpr std::chrono::seconds kProbeInterval{30};

  // What open() found.
  struct Opened {
    std::shared_ptr<File> file;
    Superblock superblock;
    Geometry geometry;  // from now on; a snapshot makes it so
    std::unique_ptr<PageIndex> index;
    Entropy entropy;
  };
  PageStore(BlockStoreOptions options, EngineLoop& loop, Ring& ring, Opened opened);
  ~PageStore() override;

  // Begins a new epoch: writes a snapshot (of a new store two, so that both superblocks are there
  // before any page is). After an error only reads work.
  Task<Result<>> start(bool is_new);

  uint64_t secret() const override { return log_.current().secret; }
  void for_each(const std::function<void(const StoredPage&)>& visit) const override;
  Task<Result<StoredPage>> put(PageName name, PagePayload payload, std::shared_ptr<void> owner,
                               StopFlag& stop) override;
  Task<Result<>> get(SlotId slot, uint64_t generation, std::span<std::byte> to,
                     std::shared_ptr<void> owner, StopFlag& stop) override;
  Task<Result<>> get_bands(SlotId slot, uint64_t generation, uint32_t first, uint32_t end,
                           std::span<std::byte> to, std::shared_ptr<void> owner,
                           StopFlag& stop) override;
  void erase(SlotId slot, uint64_t generation) override;
  uint64_t free_slots(uint32_t payload_bytes) const override;
  Task<std::optional<ScrubbedPage>> scrub_one(StopFlag& stop) override;
  Task<> close() override;
  bool drained() const override { return operations_ == 0; }
  BlockStoreStats stats() const override;
  std::string check_integrity() const override;

 private:
  class SlotPin;
  class Call;
  struct WaitOp;

  // A page on its way from written to visible. Shared by the put that waits and the lists below.
  struct Commit {
    uint32_t slot;
    uint64_t generation;
    uint64_t flush_failures;  // when its write began
    bool probe;
    WaitOp* waiter = nullptr;  // null once nobody waits: then it must not become visible
    bool ended = false;
    Result<> outcome{};
  };
  using Commits = std::vector<std::shared_ptr<Commit>>;
  struct Buried {
    uint32_t slot;
    uint64_t generation;
  };

  std::shared_ptr<void> pin(IndexedPage& page, std::shared_ptr<void> owner);
  void unpin(uint32_t slot, uint64_t generation);
  Transfer transfer_of(IndexedPage& page, uint64_t at, std::span<std::byte> memory,
                       std::shared_ptr<void> owner, std::chrono::nanoseconds patience);

  std::optional<Error> refusal(const PageName& name, const PagePayload& payload) const;
  Error read_only_error() const { return {read_only_code_, why_read_only_}; }
  Task<Result<bool>> admit(StopFlag& stop);
  Task<Result<IndexedPage*>> take_slot(PageName name, PagePayload payload, bool probe,
                                       StopFlag& stop);
  Task<std::vector<uint64_t>> take_checksums(BandSums sums, std::span<const std::byte> bytes);
  Task<Result<>> write_page(IndexedPage* page, std::span<std::byte> bytes,
                            std::shared_ptr<void> owner, StopFlag& stop);
  Task<Result<>> commit(IndexedPage* page, uint64_t flush_failures, bool probe, StopFlag& stop);
  void read_failed(uint32_t slot, uint64_t generation, const Error& error);
  void erase_page(IndexedPage& page);
  Task<> wait_for_change(StopFlag& stop);
  Task<> end_patience(StopFlag& stop);

  // page_store_commit.cc
  Task<> commit_until_closed();
  Task<> commit_round();
  bool has_work() const;
  void publish(const Commits& commits, const std::vector<Buried>& buried);
  void keep_flushed(Commits& commits);
  void fail(Commits& commits, const Error& error);
  Task<> append_or_snapshot(Commits flushed);
  Task<Result<>> snapshot(Commits flushed);
  Task<> flush_failed(Commits unflushed, Commits recorded, const Error& error);
  void count_failure(bool in_flush, const Error& error);
  bool pack_next(uint64_t& next_slot, uint64_t snapshot_id, IndexPacker& into);
  void become_read_only(const Error& error);
  void become_writable();
  void wake_committer();
  void wake_waiters();

  struct IdleOp;

  const BlockStoreOptions options_;
  EngineLoop& loop_;
  Ring& ring_;
  const std::shared_ptr<File> file_;
  Geometry geometry_;
  std::unique_ptr<PageIndex> index_;
  IndexLog log_;
  Entropy entropy_;
  uint64_t next_generation_ = 0;

  Commits written_;                         // pages whose bytes are written, not flushed
  Commits recorded_;                        // whose records are, too
  std::vector<Buried> tombstones_;          // to be written
  std::vector<Buried> written_tombstones_;  // not flushed
  bool needs_snapshot_ = true;              // the journal is in doubt
  uint64_t flush_failures_ = 0;

  bool read_only_ = false;
  std::string why_read_only_;
  ErrorCode read_only_code_ = ErrorCode::kUnavailable;
  Clock::TimePoint probe_at_{};
  bool heal_wanted_ = false;  // a put waits for a try

  uint64_t puts_waiting_ = 0;  // for a slot that comes free
  uint64_t calls_ = 0;         // puts, gets and scrubs that have not returned
  uint64_t operations_ = 0;    // on slots, whether or not anyone waits
  bool closing_ = false, closed_ = false;
  bool out_of_patience_ = false;  // close() waits no more
  Resumer committer_;             // when it has no work
  std::vector<WaitOp*> waiters_;  // for a slot, a heal, or the end of operations
  uint32_t scrub_round_ = 1;
  uint64_t scrub_next_ = 0;  // slot
  BlockStoreStats counts_;   // the counters
  StopFlag never_;
  Scope scope_;  // the committer's
};

}  // namespace spillway::io
