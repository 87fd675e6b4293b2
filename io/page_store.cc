#include "io/page_store.h"

#include <algorithm>
#include <optional>

#include "io/page_bands.h"
#include "io/page_store_ops.h"
#include "runtime/check.h"

namespace spillway::io {
namespace {

constexpr uint8_t kReadErrorsMax = 2;
constexpr uint32_t kPassedMax = 256;  // verified pages that a scrub passes before others' turn

Error gone() { return {ErrorCode::kNotFound, "the page is not in the store any more"}; }

}  // namespace

PageStore::PageStore(BlockStoreOptions options, EngineLoop& loop, Ring& ring, Opened opened)
    : options_(std::move(options)),
      loop_(loop),
      ring_(ring),
      file_(std::move(opened.file)),
      geometry_(opened.geometry),
      index_(std::move(opened.index)),
      log_({ring, loop, file_, options_.write_deadline}, opened.superblock),
      entropy_(std::move(opened.entropy)),
      scope_(loop.executor()) {}

PageStore::~PageStore() {
  CHECK(closed_);
  CHECK(drained());
}

void PageStore::for_each(const std::function<void(const StoredPage&)>& visit) const {
  for (IndexedPage* page = index_->at_or_behind(0); page != nullptr;
       page = index_->at_or_behind(uint64_t{page->slot} + page->units)) {
    if (page->state == IndexedPage::State::kLive) visit(PageIndex::stored_page(*page));
  }
}

std::shared_ptr<void> PageStore::pin(IndexedPage& page, std::shared_ptr<void> owner) {
  auto pin = std::make_shared<SlotPin>(*this, page.slot, page.generation, std::move(owner));
  index_->pin(page);
  ++operations_;
  return pin;
}

void PageStore::unpin(uint32_t slot, uint64_t generation) {
  IndexedPage* page = index_->find(slot, generation);
  CHECK(page != nullptr);
  index_->unpin(*page);
  CHECK(operations_ > 0);
  --operations_;
  wake_waiters();
}

// `at`: where in the page.
Transfer PageStore::transfer_of(IndexedPage& page, uint64_t at, std::span<std::byte> memory,
                                std::shared_ptr<void> owner, std::chrono::nanoseconds patience) {
  Transfer transfer;
  transfer.file = file_;
  transfer.offset = geometry_.area_offset + uint64_t{page.slot} * kUnitBytes + at;
  transfer.memory = memory;
  transfer.owner = pin(page, std::move(owner));
  transfer.deadline = loop_.clock().now() + patience;
  return transfer;
}

std::optional<Error> PageStore::refusal(const PageName& name, const PagePayload& payload) const {
  CHECK(payload.bytes.size() % kSectorBytes == 0);
  CHECK(payload.encoded_bytes <= payload.bytes.size());
  if (closing_) return Error{ErrorCode::kUnavailable, "the store is being closed"};
  if (name.space.size() > kSpaceBytesMax) {
    return invalid_argument("a namespace's identity can have at most " +
                            std::to_string(kSpaceBytesMax) + " bytes in the store");
  }
  if (name.tokens.size() > kSlotTokensMax) {
    return invalid_argument("a stored page can have at most " + std::to_string(kSlotTokensMax) +
                            " tokens");
  }
  if (!index_->has_class(payload.bytes.size())) {
    return invalid_argument("no slot of the store holds " + std::to_string(payload.bytes.size()) +
                            " bytes");
  }
  return std::nullopt;
}

Task<Result<StoredPage>> PageStore::put(PageName name, PagePayload payload,
                                        std::shared_ptr<void> owner, StopFlag& stop) {
  const Call call(*this);
  if (auto refused = refusal(name, payload)) co_return std::move(*refused);
  const auto probe = co_await admit(stop);
  if (!probe) co_return probe.error();
  const auto taken = co_await take_slot(name, payload, *probe, stop);
  if (!taken) co_return taken.error();
  IndexedPage* page = *taken;
  const uint32_t slot = page->slot;
  const uint64_t generation = page->generation;
  BandSums sums = index_->band_sums(*page, 0, static_cast<uint32_t>(page->checksums.size()));
  page->checksums = co_await take_checksums(std::move(sums), payload.bytes);
  const uint64_t flush_failures = flush_failures_;
  const auto written = co_await write_page(page, payload.bytes, std::move(owner), stop);
  if (!written) {
    index_->drop(*page);
    wake_waiters();
    co_return written.error();
  }
  const auto committed = co_await commit(page, flush_failures, *probe, stop);
  if (!committed) co_return committed.error();
  page = index_->find_live(slot, generation);
  if (page == nullptr) co_return gone();  // erased before this coroutine had its turn
  co_return PageIndex::stored_page(*page);
}

// Whether a put may begin: always, unless the store is read-only. Then one is let through each
// kProbeInterval (true), once the index is whole again.
Task<Result<bool>> PageStore::admit(StopFlag& stop) {
  if (stop.stopped()) co_return cancelled_error();
  if (!read_only_) co_return false;
  const auto now = loop_.clock().now();
  if (now < probe_at_) co_return read_only_error();
  probe_at_ = now + kProbeInterval;
  if (!needs_snapshot_) co_return true;
  heal_wanted_ = true;
  wake_committer();
  while (heal_wanted_ && !closing_ && !stop.stopped()) co_await wait_for_change(stop);
  if (stop.stopped()) co_return cancelled_error();
  if (read_only_) co_return read_only_error();
  co_return false;
}

Task<Result<IndexedPage*>> PageStore::take_slot(PageName name, PagePayload payload, bool probe,
                                                StopFlag& stop) {
  for (;;) {
    if (IndexedPage* page = index_->add(name, payload, next_generation_)) {
      ++next_generation_;
      co_return page;
    }
    if (index_->leaving() == 0) {
      co_return Error{
          ErrorCode::kResourceExhausted,
          "the store has no free slot of " + std::to_string(payload.bytes.size()) + " bytes"};
    }
    ++puts_waiting_;
    co_await wait_for_change(stop);  // erased pages' slots come free
    --puts_waiting_;
    if (stop.stopped()) co_return cancelled_error();
    if (closing_) co_return Error{ErrorCode::kUnavailable, "the store is being closed"};
    // Not even for a probe where the index cannot be written: no slot would ever come free.
    if (read_only_ && (!probe || needs_snapshot_)) co_return read_only_error();
  }
}

// REQUIRES: whoever awaits it keeps the bytes.
Task<std::vector<uint64_t>> PageStore::take_checksums(BandSums sums,
                                                      std::span<const std::byte> bytes) {
  if (options_.run_work && bytes.size() >= options_.elsewhere_bytes_min) {
    std::vector<uint64_t> taken;
    std::function<void()> work = [&] { taken = sums.checksums(bytes); };
    const Result<> ran = co_await options_.run_work(std::move(work));
    if (ran) co_return taken;
  }
  co_return sums.checksums(bytes);
}

Task<Result<>> PageStore::write_page(IndexedPage* page, std::span<std::byte> bytes,
                                     std::shared_ptr<void> owner, StopFlag& stop) {
  for (int attempt = 0;; ++attempt) {
    auto written =
        co_await ring_.write(transfer_of(*page, 0, bytes, owner, options_.write_deadline), stop);
    if (written) co_return Result<>();
    const ErrorCode code = written.error().code;
    if (code == ErrorCode::kCancelled) co_return written.error();
    if (code == ErrorCode::kDeadlineExceeded) {
      ++counts_.deadlines;
      co_return written.error();
    }
    ++counts_.write_errors;
    if (code != ErrorCode::kResourceExhausted) co_return written.error();
    if (attempt == 1) {
      become_read_only(written.error());
      co_return written.error();
    }
  }
}

// Hands a written page to the committer and waits until it is visible.
Task<Result<>> PageStore::commit(IndexedPage* page, uint64_t flush_failures, bool probe,
                                 StopFlag& stop) {
  if (stop.stopped()) {
    index_->drop(*page);
    wake_waiters();
    co_return cancelled_error();
  }
  auto commit = std::make_shared<Commit>();
  commit->slot = page->slot;
  commit->generation = page->generation;
  commit->flush_failures = flush_failures;
  commit->probe = probe;
  WaitOp op(stop);
  commit->waiter = &op;
  written_.push_back(commit);
  wake_committer();
  co_await suspend(op);
  op.done();
  commit->waiter = nullptr;
  if (!commit->ended) co_return cancelled_error();
  co_return commit->outcome;
}

Task<Result<>> PageStore::get(SlotId slot, uint64_t generation, std::span<std::byte> to,
                              std::shared_ptr<void> owner, StopFlag& stop) {
  const IndexedPage* page = index_->find_live(static_cast<uint32_t>(slot), generation);
  const auto bands = page == nullptr ? 1 : static_cast<uint32_t>(page->checksums.size());
  return get_bands(slot, generation, 0, bands, to, std::move(owner), stop);
}

Task<Result<>> PageStore::get_bands(SlotId slot, uint64_t generation, uint32_t first, uint32_t end,
                                    std::span<std::byte> to, std::shared_ptr<void> owner,
                                    StopFlag& stop) {
  const Call call(*this);
  const auto first_unit = static_cast<uint32_t>(slot);
  IndexedPage* page = index_->find_live(first_unit, generation);
  if (page == nullptr) co_return gone();
  const auto bands = static_cast<uint32_t>(page->checksums.size());
  const ByteRange range = bytes_of_bands(page->stored_bytes, bands, first, end);
  CHECK(to.size() == range.end - range.begin);
  Transfer transfer = transfer_of(*page, range.begin, to, owner, options_.read_deadline);
  const auto read = co_await ring_.read(std::move(transfer), stop);
  if (!read) {
    read_failed(first_unit, generation, read.error());
    co_return read.error();
  }
  page = index_->find_live(first_unit, generation);
  if (page == nullptr) co_return gone();
  BandSums sums = index_->band_sums(*page, first, end);
  const std::vector<uint64_t> found = co_await take_checksums(std::move(sums), to);
  page = index_->find_live(first_unit, generation);
  if (page == nullptr) co_return gone();
  if (!std::equal(found.begin(), found.end(), page->checksums.begin() + first)) {
    ++counts_.corrupt;
    erase_page(*page);
    co_return Error{ErrorCode::kCorrupt, "a page's bytes on disk do not verify"};
  }
  page->read_errors = 0;
  if (first == 0 && end == bands) page->scrubbed_in = scrub_round_;
  co_return Result<>();
}

void PageStore::read_failed(uint32_t slot, uint64_t generation, const Error& error) {
  IndexedPage* page = index_->find_live(slot, generation);
  switch (error.code) {
    case ErrorCode::kCancelled:
      return;
    case ErrorCode::kDeadlineExceeded:
      ++counts_.deadlines;
      return;
    case ErrorCode::kCorrupt:
      ++counts_.corrupt;
      if (page != nullptr) erase_page(*page);
      return;
    default:
      ++counts_.read_errors;
      if (page != nullptr && ++page->read_errors >= kReadErrorsMax) erase_page(*page);
  }
}

void PageStore::erase(SlotId slot, uint64_t generation) {
  IndexedPage* page = index_->find_live(static_cast<uint32_t>(slot), generation);
  if (page != nullptr) erase_page(*page);
}

void PageStore::erase_page(IndexedPage& page) {
  index_->erase(page);
  tombstones_.push_back({page.slot, page.generation});
  wake_committer();
}

uint64_t PageStore::free_slots(uint32_t payload_bytes) const {
  const uint64_t slots = index_->free_slots(payload_bytes);
  return slots - std::min(slots, puts_waiting_);
}

Task<std::optional<ScrubbedPage>> PageStore::scrub_one(StopFlag& stop) {
  const Call call(*this);
  IndexedPage* page = nullptr;
  for (uint32_t looked_at = 1;; ++looked_at) {
    page = index_->at_or_behind(scrub_next_);
    if (page == nullptr) {
      ++scrub_round_;
      scrub_next_ = 0;
      co_return std::nullopt;
    }
    if (page->state == IndexedPage::State::kLive && page->scrubbed_in != scrub_round_) break;
    scrub_next_ = uint64_t{page->slot} + page->units;
    if (looked_at % kPassedMax == 0) {
      const Result<> goes_on = co_await loop_.sleep_for(Clock::Duration::zero(), stop);
      if (!goes_on) co_return std::nullopt;
    }
  }
  ScrubbedPage scrubbed;
  scrubbed.slot = SlotId{page->slot};
  scrubbed.generation = page->generation;
  scrubbed.uid = page->uid;
  scrubbed.group = page->group;
  const uint32_t slot = page->slot;
  const uint64_t next = uint64_t{slot} + page->units;
  const SectorBuffer buffer(page->stored_bytes);
  // Whatever is wrong with it is counted and dealt with there.
  scrubbed.read =
      co_await get(scrubbed.slot, page->generation, buffer.bytes(), buffer.owner(), stop);
  scrubbed.lost = index_->find_live(slot, scrubbed.generation) == nullptr;
  const bool called_off = !scrubbed.read && scrubbed.read.error().code == ErrorCode::kCancelled;
  if (!called_off) scrub_next_ = next;
  co_return scrubbed;
}

BlockStoreStats PageStore::stats() const {
  BlockStoreStats stats = counts_;
  stats.capacity_bytes = geometry_.area_bytes;
  stats.used_bytes = index_->used_bytes();
  stats.pages = index_->live();
  stats.namespaces = index_->spaces();
  stats.file_bytes = file_->size();
  stats.direct = file_->direct();
  stats.read_only = read_only_;
  stats.why_read_only = why_read_only_;
  return stats;
}

std::string PageStore::check_integrity() const {
  if (file_->size() > options_.bytes) return "the file is larger than was allowed";
  if (needs_snapshot_ && !read_only_ && !heal_wanted_ && committer_) {
    return "the journal is in doubt and nobody mends it";
  }
  return index_->check_integrity();
}

Task<> PageStore::wait_for_change(StopFlag& stop) {
  if (stop.stopped()) co_return;
  WaitOp op(stop);
  waiters_.push_back(&op);
  co_await suspend(op);
  op.done();
  std::erase(waiters_, &op);
}

void PageStore::wake_waiters() {
  for (WaitOp* waiter : std::exchange(waiters_, {})) waiter->wake();
}

Task<> PageStore::close() {
  CHECK(!closing_);
  closing_ = true;
  Scope patience(loop_.executor());
  patience.spawn(end_patience(patience.stop()));
  wake_waiters();
  wake_committer();
  co_await scope_.join();
  while (operations_ > 0 && !out_of_patience_) co_await wait_for_change(never_);
  patience.cancel();
  co_await patience.join();
  closed_ = true;
}

Task<> PageStore::end_patience(StopFlag& stop) {
  const Result<> slept = co_await loop_.sleep_for(options_.close_deadline, stop);
  if (!slept) co_return;
  out_of_patience_ = true;
  log_.give_up();
  wake_waiters();
}

}  // namespace spillway::io
