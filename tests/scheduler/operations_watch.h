// Looks at what is enqueued on the simulated device and has not run yet, and at the states of the
// pages that it names: the order that cases K2, K3 and K4 ask for, told from the operations
// themselves and not from the bytes that a wrong order may or may not leave behind.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/sim_device.h"

namespace spillway::scheduler {

class OperationsWatch {
 public:
  struct Pool {
    const std::byte* base = nullptr;
    size_t page_bytes = 0;
    uint32_t pages = 0;
  };
  // How often something that could go wrong was going on.
  struct Seen {
    uint64_t steps = 0;               // looks at an enqueued step
    uint64_t steps_with_cancel = 0;   // of these, with a cancel of a request waiting to be heard
    uint64_t fork_copies = 0;         // looks at a fork's copy that has not run
    uint64_t freed_under_copy = 0;    // its page was given back meanwhile
    uint64_t stores_beside_step = 0;  // a copy down while a step is enqueued
    uint64_t loads_beside_step = 0;   // a page is filled while a step is enqueued
  };

  // All outlive the watch. `pools[g]` is the device memory of group g.
  OperationsWatch(const cache::KvCache& cache, const sim::SimDevice& device,
                  const sim::FakeRunner& runner, std::vector<Pool> pools)
      : cache_(cache), device_(device), runner_(runner), pools_(std::move(pools)) {}

  // Empty, or what is wrong and of which case. To be called before each operation runs.
  // `cancel_waits`: the engine has been told to end a request and has not heard it yet.
  std::string look(bool cancel_waits);
  const Seen& seen() const { return seen_; }

 private:
  using Page = std::pair<uint32_t, uint32_t>;  // group, index
  using Pages = std::set<Page>;

  cache::PageState state(const Page& page) const {
    return cache_.page_state(page.first, cache::PageId{page.second});
  }
  void name(const std::byte* address, Pages& pages) const;
  std::string look_at_step(Pages& written, Pages& named);
  std::string look_at_forks(Pages& named);
  std::string look_at_stores(const Pages& written, Pages& named);
  std::string look_at_fills(const Pages& named);

  const cache::KvCache& cache_;
  const sim::SimDevice& device_;
  const sim::FakeRunner& runner_;
  const std::vector<Pool> pools_;
  Pages freed_under_copy_;  // at the last look
  Seen seen_;
};

}  // namespace spillway::scheduler
