#include "tests/scheduler/operations_watch.h"

namespace spillway::scheduler {
namespace {

using cache::PageState;

std::string wrong(const char* what, const std::pair<uint32_t, uint32_t>& page, PageState state) {
  static constexpr const char* kNames[] = {"free", "writable", "sealed", "filling", "orphaned"};
  return std::string(what) + ": page " + std::to_string(page.second) + " of group " +
         std::to_string(page.first) + " is " + kNames[static_cast<size_t>(state)];
}

bool is_target(PageState state) {
  return state == PageState::kFilling || state == PageState::kOrphaned;
}

}  // namespace

// Adds the device page at the address, if there is one.
void OperationsWatch::name(const std::byte* address, Pages& pages) const {
  for (uint32_t g = 0; g < pools_.size(); ++g) {
    const Pool& pool = pools_[g];
    if (address < pool.base || address >= pool.base + pool.pages * pool.page_bytes) continue;
    pages.insert(
        {g, static_cast<uint32_t>(static_cast<size_t>(address - pool.base) / pool.page_bytes)});
  }
}

// Case K2: what an enqueued step writes or reads is still its sequences'.
std::string OperationsWatch::look_at_step(Pages& written, Pages& named) {
  const model::StepBatch* batch = runner_.enqueued();
  if (batch == nullptr) return "";
  ++seen_.steps;
  // What a step under its load names is the load's still.
  const bool under_load = !batch->layers_there.empty();
  const auto may_be = [&](PageState now) { return under_load && is_target(now); };
  for (const model::SequenceStep& step : batch->sequences) {
    for (uint32_t g = 0; g < step.tables.size(); ++g) {
      const uint32_t page_tokens = runner_.shape().groups[g].page_tokens;
      for (uint32_t at = 0; at < step.tables[g].size(); ++at) {
        if (step.tables[g][at] == kernels::kNoPage) continue;
        const Page page{g, static_cast<uint32_t>(step.tables[g][at])};
        named.insert(page);
        if (at < step.position / page_tokens) continue;
        if (state(page) != PageState::kWritable && !may_be(state(page)))
          return wrong("K2: a step writes", page, state(page));
        if (!written.insert(page).second) return wrong("K4: two rows write", page, state(page));
      }
    }
  }
  for (const Page& page : named) {
    const PageState now = state(page);
    if (now == PageState::kFree || (is_target(now) && !may_be(now)))
      return wrong("K2: a step reads", page, now);
  }
  return "";
}

// Cases K2, K4: a fork's page may be given back before its copy has run, but then nobody gets it.
std::string OperationsWatch::look_at_forks(Pages& named) {
  Pages copied;
  for (const sim::SimStream::Copy& copy : device_.compute_copies()) {
    name(copy.from, copied);
    name(copy.to, copied);
    ++seen_.fork_copies;
  }
  Pages freed;
  for (const Page& page : copied) {
    const PageState now = state(page);
    if (is_target(now)) return wrong("K4: a fork copies", page, now);
    if (now == PageState::kFree) {
      freed.insert(page);
    } else if (freed_under_copy_.contains(page)) {
      return wrong("K2: taken while a fork copies it", page, now);
    }
  }
  seen_.freed_under_copy += freed.size();
  freed_under_copy_ = std::move(freed);
  named.insert(copied.begin(), copied.end());
  return "";
}

// Case K3: what goes down was complete before the copy was enqueued.
std::string OperationsWatch::look_at_stores(const Pages& written, Pages& named) {
  Pages stored, fork_targets;
  for (const sim::SimStream::Copy& copy : device_.copies_out()) name(copy.from, stored);
  for (const sim::SimStream::Copy& copy : device_.compute_copies()) name(copy.to, fork_targets);
  for (const Page& page : stored) {
    if (state(page) != PageState::kSealed) return wrong("K3: stored", page, state(page));
    if (written.contains(page))
      return wrong("K3: stored while a step writes it", page, state(page));
    if (fork_targets.contains(page))
      return wrong("K3: stored before it is copied", page, state(page));
  }
  if (runner_.enqueued() != nullptr) seen_.stores_beside_step += stored.size();
  named.insert(stored.begin(), stored.end());
  return "";
}

// Case K4: what is being filled is named by nothing else that has not run.
std::string OperationsWatch::look_at_fills(const Pages& named) {
  Pages filled;
  for (const sim::SimStream::Copy& copy : device_.copies_in()) {
    const size_t before = filled.size();
    name(copy.to, filled);
    if (filled.size() == before) return "K4: two copies fill one page";
  }
  for (const Page& page : filled) {
    if (!is_target(state(page))) return wrong("K4: a copy fills", page, state(page));
  }
  const model::StepBatch* batch = runner_.enqueued();
  const bool under_load = batch != nullptr && !batch->layers_there.empty();
  for (const Page& page : named) {
    if (filled.contains(page) && !under_load)
      return wrong("K4: filled and used at once", page, state(page));
  }
  if (batch == nullptr) return "";
  for (const cache::GroupStats& group : cache_.stats().groups) {
    seen_.loads_beside_step += group.filling;
  }
  return "";
}

std::string OperationsWatch::look(bool cancel_waits) {
  Pages written, named;
  if (auto problem = look_at_step(written, named); !problem.empty()) return problem;
  if (auto problem = look_at_forks(named); !problem.empty()) return problem;
  if (auto problem = look_at_stores(written, named); !problem.empty()) return problem;
  if (cancel_waits && !written.empty()) ++seen_.steps_with_cancel;
  return look_at_fills(named);
}

}  // namespace spillway::scheduler
