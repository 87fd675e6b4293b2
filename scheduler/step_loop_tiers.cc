// The step loop's dealings with the tiers below the device: what comes up for a sequence, and what
// is kept when its pages are given back.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "scheduler/step_loop.h"

namespace spillway::scheduler {
namespace {

// A stream that has no room for its next token waits no longer than this for what others load.
constexpr std::chrono::milliseconds kLoadPatience(50);
// The reads of 8 MiB in flight end within it on a disk of 16 MB/s.
constexpr std::chrono::milliseconds kOrphanPatience(500);

}  // namespace

// Each sequence that has something to compute would wait for what this one computes.
double StepLoop::compute_price() const {
  const auto computing = std::count_if(running_.begin(), running_.end(),
                                       [this](const auto* s) { return !waits_for_load(*s); });
  return static_cast<double>(std::max<ptrdiff_t>(computing, 1));
}

void StepLoop::begin_load(LiveSequence& sequence) {
  if (parts_.tiers == nullptr) return;
  LiveRequest& request = *sequence.request;
  cache::Tiers& tiers = *parts_.tiers;
  if (request.usage.preemptions == 0 && !request.answered) {
    request.usage.matched_tokens =
        tiers.match_length(sequence.keys, sequence.tokens, sequence.pages->cached_tokens());
    // It was said of what the device holds; the path may go on below.
    auto& divergence = request.usage.first_divergence;
    if (divergence && *divergence < request.usage.matched_tokens) divergence.reset();
  }
  sequence.load =
      tiers.begin_load(sequence.keys, sequence.tokens, *sequence.pages, compute_price());
  if (request.usage.preemptions == 0 || std::exchange(sequence.replayed, false)) return;
  thrash_.came_back(bytes_to_bring_back(sequence));
  // Pages that were swapped out may not be there to be swapped in. Then turns get longer.
  const uint32_t size = static_cast<uint32_t>(sequence.tokens.size());
  uint32_t there = sequence.pages->size();
  if (sequence.load != nullptr) {
    const auto coming = sequence.load->coming();
    there += std::accumulate(coming.begin(), coming.end(), 0u) * parts_.cache.page_tokens();
  }
  slice_factor_ =
      there < size / 2 ? std::min(slice_factor_ * 2, 64.0) : std::max(slice_factor_ * 0.9, 1.0);
}

void StepLoop::advance_loads() {
  if (parts_.tiers == nullptr) return;
  for (LiveSequence* sequence : running_) {
    if (sequence->load == nullptr) continue;
    cache::Load& load = *sequence->load;
    adopt(*sequence, [&] { return parts_.tiers->adopt(load, *sequence->pages, sequence->tokens); });
    if (parts_.tiers->finished(load)) end_load(*sequence);
  }
}

// Counts the pages that `take` gives to the sequence.
bool StepLoop::adopt(LiveSequence& sequence, const std::function<bool()>& take) {
  const cache::Load& load = *sequence.load;
  const auto before = load.adopted;
  if (!take()) return false;
  const auto taken = [&](cache::Tier tier) {
    const auto index = static_cast<size_t>(tier);
    return (load.adopted[index] - before[index]) * parts_.cache.page_tokens();
  };
  const uint32_t host = taken(cache::Tier::kHost), nvme = taken(cache::Tier::kNvme);
  counters_.prefix_hits += host + nvme;
  // As with what was on the device, only the first admission's counts for its client.
  Usage& usage = sequence.request->usage;
  if (usage.preemptions == 0 && !sequence.request->answered) {
    usage.host_tokens += host;
    usage.nvme_tokens += nvme;
    usage.cached_tokens += host + nvme;
    counters_.cached_tokens += host + nvme;
  }
  return true;
}

uint32_t StepLoop::compute_until(LiveSequence& sequence) {
  if (sequence.load == nullptr) return UINT32_MAX;
  const uint32_t size = sequence.pages->size();
  const uint32_t until = parts_.tiers->compute_until(*sequence.load, size, compute_price());
  const bool waits = until <= size;
  if (waits && !sequence.waits_since) sequence.waits_since = parts_.loop.clock().now();
  if (!waits) end_wait(sequence);
  return until;
}

void StepLoop::end_wait(LiveSequence& sequence) {
  if (!sequence.waits_since) return;
  const Clock::TimePoint since = *std::exchange(sequence.waits_since, std::nullopt);
  const auto waited = parts_.loop.clock().now() - since;
  sequence.request->usage.load_seconds += std::chrono::duration<double>(waited).count();
  if (sequence.choice == 0) trace_.waited(*sequence.request, "load", since);
}

bool StepLoop::waits_for_load(const LiveSequence& sequence) const {
  return sequence.load != nullptr && sequence.waits_since.has_value();
}

// It has waited for its load so long that others who have no room need not wait with it.
bool StepLoop::is_in_the_way(const LiveSequence& sequence) const {
  return waits_for_load(sequence) &&
         parts_.loop.clock().now() - *sequence.waits_since >= kLoadPatience;
}

// Room that was promised to it is lent to others meanwhile; where that is not enough it is given up
// as one that has had its turn, with what it loads.
void StepLoop::free_promises(PolicyState& state) const {
  for (RunningSequence& sequence : state.running) {
    if (!is_in_the_way(*running_[sequence.slot])) continue;
    sequence.progress = std::max(sequence.progress, policy_.headroom_tokens);
  }
}

// Nothing can run, and not for want of what is loading: of those that go before it in order of
// service the last one's load ends, so that it computes instead.
bool StepLoop::end_load_in_the_way() {
  const bool somebody_could = std::any_of(running_.begin(), running_.end(),
                                          [this](auto* s) { return !waits_for_load(*s); });
  if (!somebody_could) return false;
  LiveSequence* last = nullptr;
  for (LiveSequence* sequence : running_) {
    const auto key = [](const LiveSequence& s) {
      return std::pair(s.request->request.priority, s.request->id);
    };
    if (!is_in_the_way(*sequence)) continue;
    if (last == nullptr || key(*last) < key(*sequence)) last = sequence;
  }
  if (last == nullptr) return false;
  end_load(*last);
  return true;
}

// Nobody has room to compute, and pages that loads let go of are still being written by reads which
// cannot be taken back. They are free in a moment; a load that ended instead would have to be
// computed. Not for long where more than one stands still.
bool StepLoop::room_comes_soon() {
  if (parts_.tiers == nullptr) return false;
  uint64_t orphans = 0;
  for (const cache::GroupStats& group : parts_.cache.stats().groups) orphans += group.orphaned;
  // Those that a hung disk keeps are waited for once.
  late_orphans_ = std::min(late_orphans_, orphans);
  if (orphans <= late_orphans_) {
    no_room_since_.reset();
    return false;
  }
  const Clock::TimePoint now = parts_.loop.clock().now();
  if (!no_room_since_) no_room_since_ = now;
  const bool alone = running_.size() == 1;
  if (now - *no_room_since_ < (alone ? kOrphanPatience : kLoadPatience)) return true;
  late_orphans_ = orphans;
  no_room_since_.reset();
  return false;
}

void StepLoop::end_load(LiveSequence& sequence) {
  if (sequence.load == nullptr) return;
  CHECK(sequence.under == nullptr);
  parts_.tiers->give_up(std::exchange(sequence.load, nullptr));
  end_wait(sequence);
}

// What the sequence has in whole pages goes down behind, so that it can come back. `running`: it
// will go on from there itself.
void StepLoop::keep_path(LiveSequence& sequence, bool running) {
  if (parts_.tiers == nullptr || !options_.prefix_caching) return;
  if (!running && sequence.choice != 0)
    return;  // one answer of several is what a chat goes on from
  const Request& request = sequence.request->request;
  const uint32_t page_tokens = parts_.cache.page_tokens();
  uint32_t whole = sequence.pages->size() / page_tokens * page_tokens;
  if (whole == 0) return;
  sequence.kept_tokens = whole;
  if (!running) keep_static_parts(sequence, whole);
  if (!running && request.explicit_breakpoints) return;
  cache::KeptPath path;
  path.tokens.assign(sequence.tokens.begin(), sequence.tokens.begin() + whole);
  path.keys = parts_.cache.keys(request.tenant, request.cache_salt, path.tokens);
  path.session = !request.session.empty() || !request.chain.empty();
  path.running = running;
  parts_.tiers->keep(std::move(path));
}

// What ends at a breakpoint goes down first, as what will be used again; with windows each of them
// also has its own last window.
void StepLoop::keep_static_parts(const LiveSequence& sequence, uint32_t whole) {
  const Request& request = sequence.request->request;
  const uint32_t page_tokens = parts_.cache.page_tokens();
  std::vector<uint32_t> ends;
  for (const Breakpoint& breakpoint : request.breakpoints) {
    const uint32_t end = breakpoint.tokens / page_tokens * page_tokens;
    if (end > 0 && end <= whole) ends.push_back(end);
  }
  const std::optional<PinOutcome>& pin = sequence.request->pin;
  if (pin && pin->result == PinResult::kPinned) ends.push_back(pin->tokens);
  const bool windows = parts_.cache.is_window(parts_.cache.groups() - 1);
  if (!windows && ends.size() > 1) ends.erase(ends.begin(), ends.end() - 1);
  for (uint32_t end : ends) {
    cache::KeptPath path;
    path.tokens.assign(sequence.tokens.begin(), sequence.tokens.begin() + end);
    path.keys = parts_.cache.keys(request.tenant, request.cache_salt, path.tokens);
    path.running = true;
    parts_.tiers->keep(std::move(path));
  }
}

// With pages short, what runs is written page by page: some of it may have to give way.
void StepLoop::keep_ahead() {
  if (parts_.tiers == nullptr) return;
  constexpr uint32_t kPagesAhead = 2;  // for each that runs
  const uint32_t short_of = kPagesAhead * static_cast<uint32_t>(running_.size());
  if (waiting_.empty() && parts_.cache.pages_available()[0] >= short_of) return;
  for (LiveSequence* sequence : running_) {
    if (sequence->load != nullptr) continue;
    if (sequence->pages->size() >= sequence->kept_tokens + parts_.cache.page_tokens()) {
      keep_path(*sequence, true);
    }
  }
}

// What is not in a whole page, and the last whole page while it may still be on its way down.
uint32_t StepLoop::lost_by_swap(const LiveSequence& sequence) const {
  const uint32_t size = sequence.pages->size();
  return size > sequence.kept_tokens ? size - sequence.kept_tokens : parts_.cache.page_tokens();
}

// A slice is long enough when bringing a sequence's pages back takes a tenth of it or less.
void StepLoop::set_slice() {
  policy_.slice_tokens = 0;
  if (parts_.tiers == nullptr || !options_.take_turns || step_seconds_ == 0) return;
  cache::PageCounts pages{};
  for (const LiveSequence* sequence : running_) {
    const cache::PageCounts held = sequence->pages->pages_held();
    for (size_t g = 0; g < pages.size(); ++g) pages[g] = std::max(pages[g], held[g]);
  }
  const std::optional<double> load_s = parts_.tiers->seconds_to_load(pages);
  if (!load_s) return;
  constexpr double kShare = 0.1;
  constexpr double kLongest = 1u << 20;
  const double tokens = *load_s / (kShare * step_seconds_) * slice_factor_;
  policy_.slice_tokens = static_cast<uint32_t>(
      std::clamp(tokens, static_cast<double>(policy_.headroom_tokens), kLongest));
}

// What a sequence that was swapped out has to have again, and does not have on the device.
uint64_t StepLoop::bytes_to_bring_back(const LiveSequence& sequence) const {
  const auto missing = static_cast<uint32_t>(sequence.tokens.size()) - sequence.pages->size();
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < layouts_.size(); ++g) {
    const kernels::KvGroupLayout& layout = layouts_[g];
    const uint32_t seen = layout.window == 0 ? missing : std::min(missing, layout.window);
    bytes += seen / layout.page_tokens * layout.page_bytes();
  }
  return bytes;
}

void StepLoop::control_thrash() {
  const uint64_t before = std::exchange(generated_before_, counters_.generated_tokens);
  if (parts_.tiers == nullptr || !options_.take_turns || !options_.control_thrash) return;
  const std::optional<double> page_s = parts_.tiers->seconds_to_load({1});
  const auto page_bytes = static_cast<double>(parts_.cache.page_bytes(0));
  thrash_.stepped(parts_.loop.clock().now(),
                  {.tokens = static_cast<uint32_t>(counters_.generated_tokens - before),
                   .bytes_per_s = page_s ? page_bytes / *page_s : 0,
                   .slice_tokens = policy_.slice_tokens,
                   .running = static_cast<uint32_t>(running_.size()),
                   .streams = static_cast<uint32_t>(running_.size() + waiting_.size())});
  policy_.turns_among = thrash_.streams_max();
}

// Nobody could be admitted: perhaps somebody's turn has ended.
void StepLoop::take_turns() {
  set_slice();
  if (policy_.slice_tokens == 0 || running_.empty()) return;
  const Turn turn = next_turn(policy_, picture());
  if (turn.swap_out.empty()) return;
  LiveSequence* in = waiting_[turn.admit];
  const std::vector<LiveSequence*> slots = running_;
  for (Slot slot : turn.swap_out) preempt(*slots[slot]);
  counters_.turns += turn.swap_out.size();
  start(*in);
}

// What the step tells of the rate of prefill: its rows and their time, at the position of the
// sequence that brought most of them.
void StepLoop::measure_step() {
  if (parts_.tiers == nullptr) return;
  if (!batch_.layers_there.empty()) return;  // it may have waited
  uint32_t rows = 0, most = 0, position = 0;
  for (const LiveSequence* sequence : stepping_) {
    rows += sequence->step_tokens;
    if (sequence->step_tokens <= most) continue;
    most = sequence->step_tokens;
    position = sequence->pages->size();
  }
  const auto time = parts_.loop.clock().now() - step_began_;
  const double seconds = std::chrono::duration<double>(time).count();
  parts_.tiers->compute_rate().measured(position, rows, seconds);
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
}

}  // namespace spillway::scheduler
