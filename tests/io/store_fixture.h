// A block store on a simulated machine, stepped by the test, so that it can be cut off after any
// step; and pages whose bytes, names and tokens follow from a number.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/block_store.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/prng.h"
#include "runtime/scope.h"
#include "tests/io/aligned.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_workers.h"

namespace spillway::io {

struct TestPage {
  explicit TestPage(uint64_t which, uint32_t size = 2 * kSectorBytes, std::string in = "space one")
      : number(which), bytes(size, which), space(std::move(in)) {
    for (int32_t i = 0; i < 16; ++i) tokens.push_back(static_cast<int32_t>(which * 16) + i);
  }
  PageName name() const {
    PageName name;
    name.space = space;
    name.key = {number + 1, ~number};
    name.uid = number;
    name.parent_uid = 7;
    name.position = static_cast<uint32_t>(number % 1000);
    name.tokens = tokens;
    return name;
  }
  PagePayload payload() const {
    return {.bytes = bytes.span(),
            .codec = 0,
            .encoded_bytes = static_cast<uint32_t>(bytes.span().size())};
  }
  uint64_t number;
  Aligned bytes;
  std::string space;
  std::vector<int32_t> tokens;
};

inline BlockStoreOptions store_options(uint64_t bytes,
                                       std::vector<uint32_t> slot_bytes = {2 * kSectorBytes}) {
  BlockStoreOptions options;
  options.directory = "store";
  options.bytes = bytes;
  options.slot_bytes = std::move(slot_bytes);
  options.seed = 1;
  return options;
}

template <class T>
Task<> store_result(Task<T> task, std::optional<T>* to) {
  to->emplace(co_await std::move(task));
}

// One process: its loop, its disk, its store.
class SimProcess {
 public:
  explicit SimProcess(sim::SimFiles& files, uint64_t seed = 1)
      : disk(loop, files, seed), scope(loop.executor()), random(seed), has_workers(seed % 2 == 0) {
    parker.disk = &disk;
  }
  ~SimProcess() { close(); }

  // One step: a piece of work, the end of one disk operation, or time to the next event.
  void step() {
    if (loop.run_one()) return;
    if (disk.run_one()) {
      ++disk_steps;
      if (crash_at && disk_steps == *crash_at) disk.crash(crash_kind);
      return;
    }
    loop.park();
  }
  void run_all() {
    while (scope.running() > 0) step();
  }
  void run_until(const std::function<bool()>& done) {
    while (!done()) step();
  }
  template <class T>
  T run(Task<T> task) {
    std::optional<T> result;
    scope.spawn(store_result(std::move(task), &result));
    while (!result) step();
    return std::move(*result);
  }

  Result<> open(BlockStoreOptions options) {
    if (has_workers) {
      options.run_work = [this](std::function<void()> work) {
        return workers.run(std::move(work));
      };
      options.elsewhere_bytes_min = 1;
    }
    auto opened = run(BlockStore::open(std::move(options), loop, disk));
    if (!opened) return opened.error();
    store = std::move(*opened);
    return {};
  }
  void close() {
    if (store != nullptr) {
      scope.spawn(store->close());
      run_all();
      settle();
      store.reset();
    }
    run_all();
    settle();
  }
  // Until nothing is in flight, what nobody waits for included.
  void settle() {
    for (;;) {
      if (loop.run_one() || disk.run_one()) continue;
      if (disk.stats().in_flight == 0) return;
      loop.park();
    }
  }

  Result<StoredPage> put(const TestPage& page) {
    return run(store->put(page.name(), page.payload(), page.bytes.owner(), stop));
  }
  Result<> get(const StoredPage& stored, const Aligned& to) {
    return run(store->get(stored.slot, stored.generation, to.span(), to.owner(), stop));
  }
  // Whether a read gives the page's bytes.
  bool serves(const StoredPage& stored, const TestPage& page) {
    const Aligned read(stored.stored_bytes);
    return get(stored, read).has_value() && read == page.bytes;
  }
  std::map<uint64_t, StoredPage> visible() const {
    std::map<uint64_t, StoredPage> found;
    store->for_each([&](const StoredPage& page) { found.emplace(page.name.key[0] - 1, page); });
    return found;
  }

  SimulatedClock clock;
  sim::SimDiskParker parker{clock};
  EngineLoop loop{clock, parker};
  sim::SimDisk disk;
  std::unique_ptr<BlockStore> store;
  StopFlag stop;
  Scope scope;
  Prng random;
  sim::SimWorkers workers{loop, random};  // for checksums
  bool has_workers;
  uint64_t disk_steps = 0;
  std::optional<uint64_t> crash_at;
  sim::Crash crash_kind = sim::Crash::kPower;
};

}  // namespace spillway::io
