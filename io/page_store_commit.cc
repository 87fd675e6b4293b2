// PageStore's committing coroutine: flushes, records, snapshots.
#include <algorithm>
#include <iterator>
#include <utility>

#include "io/page_store.h"
#include "io/page_store_ops.h"
#include "runtime/check.h"
#include "runtime/log.h"

namespace spillway::io {
namespace {

constexpr unsigned kGenerationShift = 40;  // generations of one process below its epoch

template <class T>
void append_to(std::vector<T>& list, std::vector<T> more) {
  list.insert(list.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

}  // namespace

Task<Result<>> PageStore::start(bool is_new) {
  auto begun = co_await snapshot(Commits());
  if (begun && is_new) begun = co_await snapshot(Commits());
  scope_.spawn(commit_until_closed());
  co_return begun;
}

bool PageStore::has_work() const {
  return !written_.empty() || !recorded_.empty() || !written_tombstones_.empty() || heal_wanted_ ||
         (!tombstones_.empty() && !needs_snapshot_);
}

Task<> PageStore::commit_until_closed() {
  for (;;) {
    if (has_work()) {
      co_await commit_round();
      continue;
    }
    if (closing_ && calls_ == 0) co_return;
    IdleOp idle{*this};
    co_await suspend(idle);
  }
}

void PageStore::wake_committer() {
  if (committer_) committer_.resume();
}

Task<> PageStore::commit_round() {
  Commits flushed = std::exchange(written_, {});
  Commits recorded = std::exchange(recorded_, {});
  std::vector<Buried> buried = std::exchange(written_tombstones_, {});
  if (!flushed.empty() || !recorded.empty() || !buried.empty()) {
    const auto synced = co_await log_.sync();
    if (!synced) {
      append_to(tombstones_, std::move(buried));
      co_await flush_failed(std::move(flushed), std::move(recorded), synced.error());
      co_return;
    }
    publish(recorded, buried);
  }
  keep_flushed(flushed);
  co_await append_or_snapshot(std::move(flushed));
}

// Leaves those whose bytes this flush made durable and that somebody still wants.
void PageStore::keep_flushed(Commits& commits) {
  Commits stale;
  std::erase_if(commits, [&](const std::shared_ptr<Commit>& commit) {
    IndexedPage* page = index_->find(commit->slot, commit->generation);
    CHECK(page != nullptr);
    if (commit->waiter == nullptr) {
      index_->drop(*page);
      return true;
    }
    if (commit->flush_failures != flush_failures_) {
      index_->drop(*page);
      stale.push_back(commit);
      return true;
    }
    page->flushed = true;
    return false;
  });
  fail(stale, {ErrorCode::kIo, "a flush failed while the page was being written"});
}

void PageStore::fail(Commits& commits, const Error& error) {
  for (const auto& commit : commits) {
    commit->ended = true;
    commit->outcome = error;
    if (commit->waiter != nullptr) commit->waiter->wake();
  }
  wake_waiters();
}

void PageStore::publish(const Commits& commits, const std::vector<Buried>& buried) {
  for (const auto& commit : commits) {
    IndexedPage* page = index_->find(commit->slot, commit->generation);
    CHECK(page != nullptr);
    if (commit->waiter == nullptr) {  // given up: nobody knows of it
      erase_page(*page);
      continue;
    }
    index_->publish(*page);
    commit->ended = true;
    commit->waiter->wake();
    if (commit->probe) become_writable();
  }
  for (const Buried& tombstone : buried) {
    IndexedPage* page = index_->find(tombstone.slot, tombstone.generation);
    CHECK(page != nullptr);
    index_->bury(*page);
  }
  wake_waiters();
}

Task<> PageStore::append_or_snapshot(Commits flushed) {
  if (flushed.empty() && tombstones_.empty() && !heal_wanted_) co_return;
  if (!needs_snapshot_) {
    IndexPacker records;
    for (const Buried& tombstone : tombstones_) {
      records.add_tombstone(tombstone.slot, tombstone.generation);
    }
    for (const auto& commit : flushed) {
      index_->pack(*index_->find(commit->slot, commit->generation), records, log_.snapshot_id());
    }
    if (records.empty()) co_return;
    if (log_.has_room(records.blocks())) {
      auto buried = std::exchange(tombstones_, {});
      const auto appended = co_await log_.append(records);
      if (appended) {
        recorded_ = std::move(flushed);
        written_tombstones_ = std::move(buried);
        co_return;
      }
      count_failure(false, appended.error());
      append_to(tombstones_, std::move(buried));
      needs_snapshot_ = true;
    }
  }
  co_await snapshot(std::move(flushed));
}

bool PageStore::pack_next(uint64_t& next_slot, uint64_t snapshot_id, IndexPacker& into) {
  for (;;) {
    const IndexedPage* page = index_->at_or_behind(next_slot);
    if (page == nullptr) return false;
    next_slot = uint64_t{page->slot} + page->units;
    const bool durable = page->state == IndexedPage::State::kLive ||
                         (page->state == IndexedPage::State::kWriting && page->flushed);
    if (!durable) continue;
    index_->pack(*page, into, snapshot_id);
    return true;
  }
}

// Of the visible pages and the flushed ones, which become visible by it.
Task<Result<>> PageStore::snapshot(Commits flushed) {
  std::vector<Buried> buried = std::exchange(tombstones_, {});
  index_->forget_unused_spaces();
  const uint64_t id = entropy_.next();
  IndexLog::Source source = [this, id, next_slot = uint64_t{0}](IndexPacker& into) mutable {
    return pack_next(next_slot, id, into);
  };
  const auto written = co_await log_.write_snapshot(std::move(source), geometry_, id);
  heal_wanted_ = false;
  if (written) {
    if (needs_snapshot_) become_writable();
    needs_snapshot_ = false;
    // Above every generation that an index or a slot can hold, those of pages that were written and
    // never published included: each process begins an epoch of its own.
    next_generation_ = std::max(next_generation_, log_.current().epoch << kGenerationShift);
    publish(flushed, buried);
    co_return Result<>();
  }
  count_failure(log_.failed_in_sync(), written.error());
  // What this snapshot named may be found after a crash, so its slots are not free.
  ++flush_failures_;
  needs_snapshot_ = true;
  append_to(tombstones_, std::move(buried));
  for (const auto& commit : flushed) {
    erase_page(*index_->find(commit->slot, commit->generation));
  }
  become_read_only(written.error());
  fail(flushed, written.error());
  co_return written.error();
}

// All that was written since the last good flush is lost, whatever a later flush says (case S10).
Task<> PageStore::flush_failed(Commits unflushed, Commits recorded, const Error& error) {
  count_failure(true, error);
  ++flush_failures_;
  needs_snapshot_ = true;
  append_to(unflushed, std::exchange(written_, {}));
  for (const auto& commit : unflushed) {
    index_->drop(*index_->find(commit->slot, commit->generation));
  }
  for (const auto& commit : recorded) {
    erase_page(*index_->find(commit->slot, commit->generation));
  }
  append_to(unflushed, std::move(recorded));
  fail(unflushed, error);
  co_await snapshot(Commits());
}

void PageStore::count_failure(bool in_flush, const Error& error) {
  ++(in_flush ? counts_.flush_errors : counts_.write_errors);
  if (error.code == ErrorCode::kDeadlineExceeded) ++counts_.deadlines;
}

void PageStore::become_read_only(const Error& error) {
  read_only_code_ = error.code;
  probe_at_ = loop_.clock().now() + kProbeInterval;
  if (!read_only_ || why_read_only_ != error.message) {
    spdlog::warn("store state=read-only probe_s={} error=\"{}\"", kProbeInterval.count(),
                 error.message);
  }
  read_only_ = true;
  why_read_only_ = error.message;
  wake_waiters();
}

void PageStore::become_writable() {
  if (!read_only_) return;
  read_only_ = false;
  why_read_only_.clear();
  spdlog::info("store state=writable");
  wake_waiters();
}

}  // namespace spillway::io
