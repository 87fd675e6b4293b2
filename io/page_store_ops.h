// What PageStore's coroutines wait with, and what tells it that they and their operations ended.
#pragma once

#include <memory>
#include <utility>

#include "io/page_store.h"
#include "runtime/stop.h"
#include "runtime/suspend.h"

namespace spillway::io {

// Owner of a transfer to or from a slot: keeps the slot, and what the caller gave, until the
// operation has really ended.
class PageStore::SlotPin {
 public:
  SlotPin(PageStore& store, uint32_t slot, uint64_t generation, std::shared_ptr<void> owner)
      : store_(store), slot_(slot), generation_(generation), owner_(std::move(owner)) {}
  ~SlotPin() { store_.unpin(slot_, generation_); }
  SlotPin(const SlotPin&) = delete;
  SlotPin& operator=(const SlotPin&) = delete;

 private:
  PageStore& store_;
  const uint32_t slot_;
  const uint64_t generation_;
  const std::shared_ptr<void> owner_;
};

// In the frame of each public coroutine: close() waits for them.
class PageStore::Call {
 public:
  explicit Call(PageStore& store) : store_(store) {
    CHECK(!store.closed_);
    ++store_.calls_;
  }
  ~Call() {
    --store_.calls_;
    if (store_.closing_) store_.wake_committer();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  PageStore& store_;
};

// Lives in the frame of who waits, who unlinks it. REQUIRES: the flag has not stopped.
struct PageStore::WaitOp final : StopListener {
  explicit WaitOp(StopFlag& by) : stop(by) {}
  void start(Resumer with) {
    resumer = std::move(with);
    stop.add(*this);
  }
  void on_stop() override { wake(); }
  void wake() {
    if (resumer) resumer.resume();
  }
  void done() {
    if (linked()) unlink();
  }
  StopFlag& stop;
  Resumer resumer;
};

struct PageStore::IdleOp {
  PageStore& store;
  void start(Resumer resumer) { store.committer_ = std::move(resumer); }
};

}  // namespace spillway::io
