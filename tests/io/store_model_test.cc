// Random commands on a store and on a plain model of it, on a disk that fails in one of three ways,
// with crashes in between.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "tests/io/store_fixture.h"

namespace spillway::io {
namespace {

using namespace std::chrono_literals;

enum class Disk : uint8_t {
  kGood,     // slow and out of order
  kFailing,  // says so: errors, stalls, no space, failed flushes
  kLying,    // says it is done: lost, torn, misplaced writes, bit rot
};

BlockStoreOptions model_options() {
  return store_options(64 * kSectorBytes, {1 * kSectorBytes, 2 * kSectorBytes, 5 * kSectorBytes});
}

class Model {
 public:
  Model(Disk disk, uint64_t seed) : disk_(disk), seed_(seed), random_(seed) { open(); }
  ~Model() { process_->scope.cancel(); }

  void run(uint32_t command) {
    const uint32_t amount = command / 12;
    switch (command % 12) {
      case 0:
      case 1:
      case 2:
        process_->scope.spawn(put(*process_, next_++, amount % 8 == 0));
        break;
      case 3:
      case 4:
        for (uint32_t i = amount % 20; i-- > 0 && process_->scope.running() > 0;) process_->step();
        break;
      case 5:
        if (const auto page = some_page(amount)) get(*page);
        break;
      case 6:
      case 7:
        if (const auto page = some_page(amount)) erase(*page);
        break;
      case 8:
        process_->run(process_->store->scrub_one(never_));
        if (disk_ != Disk::kGood) forgive();
        break;
      case 9:
        process_->run_all();
        if (amount % 4 == 0) process_->clock.advance(31s);
        break;
      case 10:
        cancel_puts();
        break;
      case 11:
        if (amount % 3 == 0) crash(amount % 2 == 0 ? sim::Crash::kPower : sim::Crash::kProcess);
        if (amount % 3 == 1) restart();
        break;
    }
    check();
  }
  // The disk is good again: whatever happened before, the store must work.
  void recover() {
    process_->disk.faults = {};
    process_->run_all();
    process_->settle();  // what is in flight is not to miss its deadline by the next line
    process_->clock.advance(31s);
    for (const auto& [number, stored] : process_->visible()) {
      process_->store->erase(stored.slot, stored.generation);
      possible_.insert(number);
      published_.erase(number);
    }
    const TestPage page(next_++, 5 * kSectorBytes);
    const auto stored = process_->put(page);
    RC_ASSERT(stored.has_value());
    RC_ASSERT(process_->serves(*stored, page));
    RC_ASSERT(!process_->store->stats().read_only);
    // Stalled operations still hold slots.
    process_->settle();
    RC_ASSERT(process_->store->stats().used_bytes == 5 * kSectorBytes);
  }

  uint64_t crashes() const { return crashes_; }
  // That showed: in this process of the store.
  uint64_t faults() const {
    const BlockStoreStats stats = process_->store->stats();
    return stats.corrupt + stats.read_errors + stats.write_errors + stats.flush_errors +
           stats.deadlines;
  }

 private:
  static uint32_t bytes_of(uint64_t number) {
    return (number % 3 == 0 ? 1 : number % 3 == 1 ? 2 : 5) * kSectorBytes;
  }
  void open() {
    process_ = std::make_unique<SimProcess>(files_, ++seed_);
    stop_ = std::make_unique<StopFlag>();
    const auto opened = process_->open(model_options());  // nothing fails while it opens
    RC_ASSERT(opened.has_value());
    set_faults();
  }
  void set_faults() {
    sim::SimDiskFaults& faults = process_->disk.faults;
    faults.latency_max = 100us;
    if (disk_ == Disk::kFailing) {
      faults.read_error = faults.short_read = faults.write_error = faults.failed_sync = 0.05;
      faults.no_space = faults.stall = 0.02;
    } else if (disk_ == Disk::kLying) {
      faults.lost_write = faults.torn_write = faults.misdirected_write = faults.bit_rot = 0.03;
    }
  }
  Task<> put(SimProcess& process, uint64_t number, bool impatient) {
    const TestPage page(number, bytes_of(number), "space " + std::to_string(number % 4));
    possible_.insert(number);
    StopFlag* stop = impatient ? stop_.get() : &never_;
    const auto stored =
        co_await process.store->put(page.name(), page.payload(), page.bytes.owner(), *stop);
    if (!stored || process.disk.crashed()) co_return;
    possible_.erase(number);
    published_[number] = *stored;
  }
  std::optional<uint64_t> some_page(uint32_t amount) const {
    if (published_.empty()) return std::nullopt;
    return std::next(published_.begin(), amount % published_.size())->first;
  }
  void get(uint64_t number) {
    const StoredPage stored = published_.at(number);
    const Aligned read(bytes_of(number));
    const auto got = process_->get(stored, read);
    if (got) RC_ASSERT(read == TestPage(number, bytes_of(number)).bytes);
    if (!got) RC_ASSERT(disk_ != Disk::kGood);
    if (!got) forgive();
  }
  void erase(uint64_t number) {
    const StoredPage stored = published_.at(number);
    process_->store->erase(stored.slot, stored.generation);
    published_.erase(number);
    possible_.insert(number);
  }
  // Pages that a failing read has cost.
  void forgive() {
    const auto visible = process_->visible();
    std::erase_if(published_, [&](const auto& page) {
      if (visible.contains(page.first)) return false;
      possible_.insert(page.first);
      return true;
    });
  }
  void cancel_puts() {
    stop_->stop();
    process_->run_all();
    stop_ = std::make_unique<StopFlag>();
  }
  void crash(sim::Crash how) {
    ++crashes_;
    process_->disk.crash(how);
    reopen();
  }
  void restart() {
    process_->disk.faults = {};
    reopen();
  }
  void reopen() {
    process_.reset();
    open();
    if (disk_ == Disk::kLying) return forgive();
    const auto visible = process_->visible();
    for (auto& [number, stored] : published_) {
      RC_ASSERT(visible.contains(number));
      stored = visible.at(number);
    }
    // An erased page whose tombstone was not durable, a put that did not return: may be there.
    for (const auto& [number, stored] : visible) {
      if (published_.contains(number)) continue;
      RC_ASSERT(possible_.contains(number));
      published_[number] = stored;
    }
  }
  void check() {
    RC_ASSERT(process_->store->check_integrity() == "");
    RC_ASSERT(files_.find("store/pages.kv")->size() <= model_options().bytes);
    // A write that lands elsewhere can hit both superblocks.
    RC_ASSERT(files_.all().size() == 1u || disk_ == Disk::kLying);
    const BlockStoreStats stats = process_->store->stats();
    RC_ASSERT(stats.used_bytes <= stats.capacity_bytes);
    uint64_t used = 0;
    const auto visible = process_->visible();
    for (const auto& [number, stored] : visible) {
      RC_ASSERT(possible_.contains(number) || published_.contains(number));
      used += stored.stored_bytes;
    }
    RC_ASSERT(stats.pages == visible.size());
    RC_ASSERT(used <= stats.used_bytes);
    for (const auto& [number, stored] : published_) RC_ASSERT(visible.contains(number));
    if (process_->scope.running() == 0 && disk_ == Disk::kGood) {
      RC_ASSERT(visible.size() == published_.size());
    }
    if (disk_ == Disk::kGood) RC_ASSERT(stats.corrupt + stats.read_errors == 0u);
  }

  const Disk disk_;
  uint64_t seed_;
  Prng random_;
  sim::SimFiles files_;
  StopFlag never_;
  std::unique_ptr<StopFlag> stop_;
  std::unique_ptr<SimProcess> process_;
  uint64_t next_ = 0, crashes_ = 0;
  std::map<uint64_t, StoredPage> published_;  // must be there
  std::set<uint64_t> possible_;               // may be there
};

// Each list of commands runs on ten disks.
void check_model(Disk disk) {
  EXPECT_TRUE(rc::check([disk] {
    const auto seed = *rc::gen::inRange<uint64_t>(0, 1u << 30);
    const auto commands = *rc::gen::scale(
        4, rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 12u << 20)));
    for (uint64_t i = 0; i < 10; ++i) {
      Model model(disk, seed + i * 1000);
      for (const uint32_t command : commands) model.run(command);
      model.recover();
      if (i > 0) continue;
      RC_CLASSIFY(model.crashes() > 0, "with crashes");
      RC_CLASSIFY(model.faults() > 0, "with faults");
    }
  }));
}

// cases S1, S5, S8
TEST(store_model, on_a_good_disk_all_that_was_published_is_served_across_crashes) {
  check_model(Disk::kGood);
}

// cases S6, S9, S10, S11
TEST(store_model, on_a_failing_disk_nothing_published_is_lost_but_by_its_own_reads) {
  check_model(Disk::kFailing);
}

// cases S1 to S4
TEST(store_model, on_a_lying_disk_no_wrong_byte_is_served) { check_model(Disk::kLying); }

}  // namespace
}  // namespace spillway::io
