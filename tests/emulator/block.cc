#include "tests/emulator/block.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace spillway::emulator {
namespace {

thread_local Thread* running = nullptr;

constexpr uint32_t kAllLanes = 0xffffffffu;

bool same_site(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

Thread& this_thread() {
  CHECK(running != nullptr);
  return *running;
}

Thread::Thread(Block& block, uint32_t index, std::byte* stack)
    : block_(block), index_(index), fiber_(stack) {}

Accessor Thread::accessor() const {
  return {index_, block_.block_epoch_, block_.warps_[index_ / kWarpThreads].epoch};
}

void Thread::wait(Wait wait, uint32_t mask, const Site& site) {
  if (block_.gives_up_) throw Block::Unwind{};
  waits_ = wait;
  mask_ = mask;
  site_ = site;
  fiber_.yield();
  if (block_.gives_up_) throw Block::Unwind{};
}

void Thread::sync_block(const Site& site) { wait(Wait::kBlock, kAllLanes, site); }

void Thread::sync_warp(uint32_t mask, const Site& site) {
  orders_ = mask == kAllLanes;
  exchange(mask, nullptr, 0, site);
  orders_ = false;
}

std::span<const LaneSlot, kWarpThreads> Thread::exchange(uint32_t mask, const void* data,
                                                         size_t bytes, const Site& site) {
  CHECK(bytes <= sizeof(LaneSlot));
  const uint32_t lane = index_ % kWarpThreads;
  if ((mask >> lane & 1) == 0) {
    report(DefectKind::kWarp, "is not among the lanes that it names", site);
    mask |= 1u << lane;
  }
  Block::Warp& warp = block_.warps_[index_ / kWarpThreads];
  if (bytes != 0) std::memcpy(warp.arriving[lane].bytes.data(), data, bytes);
  wait(Wait::kWarp, mask, site);
  return warp.settled;
}

void Thread::issue_copy(const Copy& copy, const Site& site) {
  const SharedRange range{copy.to, copy.bytes, copy.bytes};
  if (reinterpret_cast<uintptr_t>(copy.from) % copy.bytes != 0) {
    report(DefectKind::kMisaligned, "copies from an address off its alignment", site);
    return;
  }
  if (!check(Access::kWrite, range, site)) return;
  block_.shared_.begin_copy(range, accessor());
  open_copies_.push_back(copy);
}

void Thread::commit_copies() { groups_.push_back(std::exchange(open_copies_, {})); }

void Thread::wait_copies(size_t pending) {
  while (groups_.size() > pending) {
    for (const Copy& copy : groups_.front()) {
      std::byte* to = block_.shared_.at(copy.to);
      if (copy.from == nullptr) {
        std::memset(to, 0, copy.bytes);
      } else {
        std::memcpy(to, copy.from, copy.bytes);
      }
      block_.shared_.end_copy({copy.to, copy.bytes, 1}, accessor());
    }
    groups_.erase(groups_.begin());
  }
}

bool Thread::check(Access access, const SharedRange& range, const Site& site) {
  const SharedMemory::Verdict verdict = block_.shared_.check(access, range, accessor());
  if (!verdict.good()) report(verdict.kind, verdict.text, site);
  return verdict.good();
}

void Thread::report(DefectKind kind, const std::string& what, const Site& site) {
  const auto& [x, y, z] = block_.run_.index;
  block_.defects().add(kind, "block (" + std::to_string(x) + ", " + std::to_string(y) + ", " +
                                 std::to_string(z) + "), thread " + std::to_string(index_) +
                                 " at " + site_text(site) + " " + what);
}

Block::Block() = default;
Block::~Block() = default;

void Block::grow(uint32_t threads) {
  while (threads_.size() < threads) {
    if (threads_.size() % kWarpThreads == 0) {
      stacks_.push_back(std::make_unique<StackSlab>(kWarpThreads));
    }
    const auto index = static_cast<uint32_t>(threads_.size());
    threads_.push_back(
        std::make_unique<Thread>(*this, index, stacks_.back()->bottom(index % kWarpThreads)));
  }
}

void Block::run(const Run& run, const std::function<void()>& body, std::mt19937_64& random,
                Defects& defects) {
  CHECK(run.threads % kWarpThreads == 0);
  CHECK(run.threads <= kThreadsMax);
  run_ = run;
  defects_ = &defects;
  block_epoch_ = 0;
  gives_up_ = false;
  grow(run.threads);
  warps_.resize(run.threads / kWarpThreads);
  for (Warp& warp : warps_) warp.epoch = 0;
  shared_.reset(run.dynamic_bytes);
  for (uint32_t i = 0; i < run.threads; ++i) {
    Thread& thread = *threads_[i];
    thread.waits_ = Thread::Wait::kNothing;
    thread.orders_ = false;
    thread.open_copies_.clear();
    thread.groups_.clear();
    thread.fiber_.start([&body, &thread] {
      try {
        body();
      } catch (const Unwind&) {
      }
      thread.waits_ = Thread::Wait::kEnded;
    });
  }
  while (!all_ended()) {
    run_ready(random);
    if (release() || all_ended()) continue;
    report_stuck();
    give_up();
  }
}

// Runs every thread that waits for nothing until it waits or ends.
void Block::run_ready(std::mt19937_64& random) {
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < run_.threads; ++i) {
    if (threads_[i]->waits_ == Thread::Wait::kNothing) ready.push_back(i);
  }
  std::shuffle(ready.begin(), ready.end(), random);
  for (const uint32_t i : ready) {
    Thread* before = std::exchange(running, threads_[i].get());
    threads_[i]->fiber_.resume();
    running = before;
  }
}

bool Block::all_ended() const {
  return std::all_of(threads_.begin(), threads_.begin() + run_.threads,
                     [](const auto& t) { return t->waits_ == Thread::Wait::kEnded; });
}

bool Block::release() {
  bool any = release_block();
  const std::span<const std::unique_ptr<Thread>> threads(threads_);
  for (uint32_t w = 0; w < warps_.size(); ++w) {
    any |= release_warp(warps_[w], threads.subspan(w * kWarpThreads, kWarpThreads));
  }
  return any;
}

bool Block::release_block() {
  const Site& site = threads_[0]->site_;
  for (uint32_t i = 0; i < run_.threads; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.waits_ != Thread::Wait::kBlock || !same_site(thread.site_, site)) return false;
  }
  ++block_epoch_;
  for (uint32_t i = 0; i < run_.threads; ++i) threads_[i]->waits_ = Thread::Wait::kNothing;
  return true;
}

// Lets go each set of lanes that have all come to the same operation.
bool Block::release_warp(Warp& warp, std::span<const std::unique_ptr<Thread>> lanes) {
  bool any = false;
  for (const auto& first : lanes) {
    if (first->waits_ != Thread::Wait::kWarp) continue;
    const auto is_there = [&](const Thread& other) {
      return other.waits_ == Thread::Wait::kWarp && other.mask_ == first->mask_ &&
             same_site(other.site_, first->site_);
    };
    const uint32_t mask = first->mask_;
    uint32_t there = 0;
    for (uint32_t lane = 0; lane < kWarpThreads; ++lane) {
      there |= static_cast<uint32_t>(is_there(*lanes[lane])) << lane;
    }
    if ((there & mask) != mask) continue;
    if (!any) warp.settled = warp.arriving;
    any = true;
    if (first->orders_) ++warp.epoch;
    for (uint32_t lane = 0; lane < kWarpThreads; ++lane) {
      if ((mask >> lane & 1) != 0) lanes[lane]->waits_ = Thread::Wait::kNothing;
    }
  }
  return any;
}

std::string Block::whereabouts(const Thread& thread) const {
  const std::string name = "thread " + std::to_string(thread.index_);
  switch (thread.waits_) {
    case Thread::Wait::kEnded:
      return name + " has ended";
    case Thread::Wait::kBlock:
      return name + " waits at the barrier in " + site_text(thread.site_);
    case Thread::Wait::kWarp:
      return name + " waits for its warp in " + site_text(thread.site_);
    case Thread::Wait::kNothing:
      return name + " runs";
  }
  return name;
}

// Says which operation is incomplete: a warp's, which keeps others from the barrier, else that.
void Block::report_stuck() {
  const auto first_in = [&](Thread::Wait wait) -> Thread* {
    for (uint32_t i = 0; i < run_.threads; ++i) {
      if (threads_[i]->waits_ == wait) return threads_[i].get();
    }
    return nullptr;
  };
  Thread* stuck = first_in(Thread::Wait::kWarp);
  const bool in_warp = stuck != nullptr;
  if (!in_warp) stuck = first_in(Thread::Wait::kBlock);
  const uint32_t begin = in_warp ? stuck->index_ / kWarpThreads * kWarpThreads : 0;
  const uint32_t end = in_warp ? begin + kWarpThreads : run_.threads;
  for (uint32_t i = begin; i < end; ++i) {
    const Thread& other = *threads_[i];
    if (other.waits_ == stuck->waits_ && same_site(other.site_, stuck->site_)) continue;
    stuck->report(in_warp ? DefectKind::kWarp : DefectKind::kBarrier,
                  "waits in vain: " + whereabouts(other), stuck->site_);
    return;
  }
  stuck->report(DefectKind::kWarp, "waits in vain: the lanes name different masks", stuck->site_);
}

void Block::give_up() {
  gives_up_ = true;
  for (uint32_t i = 0; i < run_.threads; ++i) {
    Thread& thread = *threads_[i];
    if (thread.waits_ == Thread::Wait::kEnded) continue;
    Thread* before = std::exchange(running, &thread);
    thread.fiber_.resume();
    running = before;
  }
}

}  // namespace spillway::emulator
