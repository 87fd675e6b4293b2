#include "scheduler/step_loop.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace spillway::scheduler {
namespace {

bool expired(const LiveRequest& request, Clock::TimePoint now) {
  return request.request.deadline && *request.request.deadline <= now;
}

}  // namespace

StepLoop::StepLoop(const EngineOptions& options, const PolicyOptions& policy, Parts parts)
    : options_(options),
      policy_(policy),
      parts_(std::move(parts)),
      layouts_(parts_.runner.shape().groups),
      inbox_(4 * (size_t{options.waiting_max} + options.sequences_max) + 64),
      held_(parts_.loop, parts_.cache, options.pin_tenants, [this] { look_again(); }),
      step_done_(parts_.device.make_event()),
      rebuild_scope_(parts_.loop.executor()),
      trace_(parts_.loop) {
  if (parts_.tiers != nullptr) {
    parts_.tiers->set_on_progress([this] { look_again(); });
    parts_.tiers->set_is_idle([this] { return requests_.empty(); });
  }
  publish();
}

StepLoop::~StepLoop() { CHECK(requests_.empty()); }

Task<> StepLoop::run() {
  for (;;) {
    trace_.mark();
    while (auto command = inbox_.try_pop()) handle(std::move(*command));
    drop_ended();
    held_.expire();
    if (!device_works()) {
      if (shutting_down_ && requests_.empty()) break;
      co_await rest();
      continue;
    }
    advance_loads();
    advance_prefetches();
    // With nothing running somebody must come in, paused or not.
    if (!admission_paused_ || running_.empty()) admit_waiting();
    if (!waiting_.empty() && !prefetches_.empty()) {
      cancel_prefetches();  // their room is wanted
      continue;
    }
    report_waiting();
    if (build_step()) {
      no_room_since_.reset();
      co_await run_step();
      continue;
    }
    const bool loading = std::any_of(running_.begin(), running_.end(),
                                     [this](LiveSequence* s) { return waits_for_load(*s); });
    const bool somebody_could = std::any_of(running_.begin(), running_.end(),
                                            [this](auto* s) { return !waits_for_load(*s); });
    if (somebody_could && !prefetches_.empty()) {
      cancel_prefetches();  // their room may be what is missing
      continue;
    }
    if (loading && end_load_in_the_way()) continue;
    if (loading) {
      co_await rest();
      continue;
    }
    if (!running_.empty() && room_comes_soon()) {
      parts_.tiers->wake_soon();
      co_await rest();
      continue;
    }
    const auto loads = std::find_if(running_.begin(), running_.end(),
                                    [](LiveSequence* s) { return s->load != nullptr; });
    if (loads != running_.end()) {
      end_load(**loads);  // its pages may be what is missing
      continue;
    }
    if (!running_.empty() && parts_.tiers != nullptr && parts_.tiers->holds_pages()) {
      parts_.tiers->let_go_of_holds();
      continue;
    }
    if (!running_.empty()) {
      // Shared pages made the policy too hopeful and nobody could run: the youngest makes room, if
      // possible one that has made its progress, and nobody comes in before a step has run.
      preempt(youngest());
      admission_paused_ = true;
      continue;
    }
    if (shutting_down_ && requests_.empty()) break;
    // Who waits with nothing running waits for pages that transfers hold.
    CHECK(waiting_.empty() || parts_.tiers != nullptr);
    if (!waiting_.empty()) parts_.tiers->wake_soon();
    co_await rest();
  }
  tell();
  held_.clear();
  co_await rebuild_scope_.join();
}

// What build_step() has put together: on the device, and then to the clients.
Task<> StepLoop::run_step() {
  batch_.stamped = trace_.on();
  step_began_ = parts_.loop.clock().now();
  trace_.engine("plan");
  parts_.runner.enqueue(batch_, result_);
  parts_.device.compute().record(*step_done_);
  tell();  // while the device computes
  trace_.engine("deliver");
  co_await step_done_->wait();
  while (parts_.runner.enqueue_rest()) {
    parts_.device.compute().record(*step_done_);
    co_await step_done_->wait();
  }
  parts_.runner.collect(batch_, result_);
  trace_.step({step_began_, counters_.steps, running_.size(), waiting_.size()}, batch_, result_);
  const bool survived = parts_.device.failure() == nullptr;
  if (survived) measure_step();
  if (!survived) {
    drop_lost_step();
  } else if (result_.failure.empty()) {
    take_step();
  } else {
    drop_step();
  }
  control_thrash();
  trace_.engine("take the step");
  if (std::exchange(copies_enqueued_, false)) {
    // A page that a fork's copy still reads or writes may be given back and then be the target
    // of a transfer, which the compute stream does not order (cases K2, K4).
    parts_.device.compute().record(*step_done_);
    co_await step_done_->wait();
  }
}

// Nothing can run now.
Task<> StepLoop::rest() {
  tell();
  co_await wait_for_command();
}

Task<> StepLoop::wait_for_command() {
  idle_ = true;
  auto command = co_await inbox_.pop(never_);
  idle_ = false;
  CHECK(command.has_value());
  handle(std::move(*command));
}

void StepLoop::handle(Command command) {
  if (auto* submit = std::get_if<SubmitCommand>(&command)) {
    accept(std::move(submit->request));
  } else if (auto* cancel = std::get_if<CancelCommand>(&command)) {
    const auto found = requests_.find(static_cast<uint64_t>(cancel->request));
    if (found != requests_.end()) found->second->cancelled = true;
  } else if (auto* session = std::get_if<EndSessionCommand>(&command)) {
    for (auto& [id, request] : requests_) {  // what still runs must not hold it again
      if (request->request.session == session->session) request->request.session.clear();
    }
    cancel_prefetches(session->session);
    session_paths_.erase(session->session);
    parts_.cache.end_session(session->session);
  } else if (auto* near = std::get_if<PrefetchCommand>(&command)) {
    prefetch(near->session);
  } else if (auto* reset = std::get_if<ResetCacheCommand>(&command)) {
    cancel_prefetches();
    session_paths_.clear();
    uint64_t pages = parts_.cache.clear();
    if (parts_.tiers != nullptr) pages += parts_.tiers->clear();
    held_.clear();
    publish();
    reset->then(pages);
  } else if (std::holds_alternative<StartTraceCommand>(command)) {
    parts_.loop.trace().hold();
  } else if (auto* trace = std::get_if<TakeTraceCommand>(&command)) {
    take_trace(*trace);
  } else if (auto* list = std::get_if<ListPinsCommand>(&command)) {
    list_pins(std::move(*list));
  } else if (auto* pin = std::get_if<UnpinCommand>(&command)) {
    unpin(std::move(*pin));
  } else if (std::holds_alternative<ShutDownCommand>(command)) {
    shutting_down_ = true;
    cancel_prefetches();
    for (auto& [id, request] : requests_) request->cancelled = true;
  }
}

void StepLoop::take_trace(TakeTraceCommand& command) {
  TraceSnapshot taken = parts_.loop.trace().snapshot(command.begin, parts_.loop.clock().now());
  for (const auto& [id, request] : requests_) trace_.add_open(*request, taken);
  if (command.tenant) trace_.keep_own(taken, *command.tenant);
  parts_.loop.trace().release();
  command.then(std::move(taken));
}

void StepLoop::accept(std::unique_ptr<LiveRequest> request) {
  if (shutting_down_) request->cancelled = true;
  request->banned = banned_tokens(parts_.tokenizer, request->request);
  request->unfinished = request->request.choices;
  request->usage.prompt_tokens = request->prompt_tokens();
  counters_.prompt_tokens += request->prompt_tokens();
  decide_pin(*request);
  wants_reports(*request);
  LiveSequence& first = *request->sequences.front();
  first.choices_to_fork = request->request.choices;
  first.text = make_text_stream(parts_.tokenizer, request->request);
  if (request->request.prompt_logprobs) {
    request->prompt_scores.resize(request->prompt_tokens());
    request->prompt_scores[0].token = request->request.prompt[0];
  }
  insert_waiting(first);
  const auto id = static_cast<uint64_t>(request->id);
  requests_.emplace(id, std::move(request));
}

void StepLoop::drop_ended() {
  const auto now = parts_.loop.clock().now();
  std::vector<std::pair<LiveRequest*, FinishReason>> ended;
  for (auto& [id, request] : requests_) {
    if (request->cancelled) {
      ended.emplace_back(request.get(), FinishReason::kCancelled);
    } else if (expired(*request, now)) {
      ended.emplace_back(request.get(), FinishReason::kDeadline);
    }
  }
  for (auto [request, reason] : ended) finish_all(*request, reason);
  sweep();
}

LiveSequence& StepLoop::youngest() {
  const auto key = [this](const LiveSequence* sequence) {
    return std::pair(sequence->progress >= policy_.headroom_tokens, sequence->request->id);
  };
  return **std::max_element(
      running_.begin(), running_.end(),
      [&](const LiveSequence* a, const LiveSequence* b) { return key(a) < key(b); });
}

Plan StepLoop::make_plan() {
  PolicyState state = picture();
  free_promises(state);
  under_load_ = offer_under_load(state);
  return plan(policy_, state);
}

bool StepLoop::build_step() {
  batch_.sequences.clear();
  batch_.layers_there.clear();
  stepping_.clear();
  if (running_.empty()) return false;
  Plan step = make_plan();
  if (!step.preempt.empty() && !prefetches_.empty()) {
    cancel_prefetches();  // before anybody who runs has to go
    step = make_plan();
  }
  const std::vector<LiveSequence*> slots = running_;
  for (Slot slot : step.preempt) preempt(*slots[slot]);
  for (const PlannedStep& planned : step.steps) {
    LiveSequence& sequence = *slots[planned.slot];
    if (sequence.phase != Phase::kRunning) continue;
    // The policy counts shared pages as if they were private; where that was too hopeful the
    // sequence sits this step out.
    const auto has_room = [&] {
      return &sequence == under_load_ ? begin_under_load(sequence, planned.tokens)
                                      : parts_.cache.reserve(*sequence.pages, planned.tokens);
    };
    if (!has_room()) {
      cancel_prefetches();
      if (!has_room()) continue;
    }
    add_rows(sequence, planned.tokens);
  }
  // Nobody's token waits for another's bands.
  CHECK(batch_.layers_there.empty() || stepping_.size() == 1);
  return !stepping_.empty();
}

void StepLoop::add_rows(LiveSequence& sequence, uint32_t rows) {
  LiveRequest& request = *sequence.request;
  const cache::StepUnderLoad* under = sequence.under.get();
  const uint32_t position = under != nullptr ? under->position : sequence.pages->size();
  const uint32_t prompt_tokens = request.prompt_tokens();
  const std::span<const model::TokenId> tokens(sequence.tokens);
  sequence.step_tokens = rows;
  model::SequenceStep step;
  step.tokens = tokens.subspan(position, rows);
  step.position = position;
  for (uint32_t g = 0; g < layouts_.size(); ++g) {
    step.tables.push_back(under != nullptr ? under->tables[g] : sequence.pages->table(g));
  }
  if (request.wants_scores()) {
    for (uint32_t row = 0; row < rows && position + row + 1 < prompt_tokens; ++row) {
      model::SampleRequest score;
      score.row = row;
      score.scored = tokens[position + row + 1];
      score.want_logprob = true;
      score.top_logprobs = *request.request.prompt_logprobs;
      step.samples.push_back(score);
    }
  }
  const bool last = position + rows == tokens.size();
  if (last && request.request.stop.max_tokens > 0) {
    for (uint32_t i = 0; i < sequence.choices_to_fork; ++i) {
      model::SampleRequest draw;
      draw.row = rows - 1;
      draw.params = &request.request.sampling;
      draw.choice = sequence.choice + i;
      draw.prompt = tokens.first(prompt_tokens);
      draw.output = tokens.subspan(prompt_tokens);
      if (request.outputs(sequence) < request.request.stop.min_tokens) {
        draw.banned = request.banned;
      }
      draw.want_logprob = request.request.logprobs.has_value();
      draw.top_logprobs = request.request.logprobs.value_or(0);
      step.samples.push_back(draw);
    }
  }
  batch_.sequences.push_back(std::move(step));
  stepping_.push_back(&sequence);
}

void StepLoop::take_step() {
  ++counters_.steps;
  CHECK(result_.samples.size() == stepping_.size());
  for (size_t i = 0; i < stepping_.size(); ++i) {
    LiveSequence& sequence = *stepping_[i];
    LiveRequest& request = *sequence.request;
    if (sequence.under != nullptr && !end_under_load(sequence)) continue;
    const uint32_t position = sequence.pages->size();
    const auto rows =
        std::span<const model::TokenId>(sequence.tokens).subspan(position, sequence.step_tokens);
    parts_.cache.commit(*sequence.pages, rows);
    const uint32_t prompt_tokens = request.prompt_tokens();
    request.usage.computed_tokens += std::min(position + sequence.step_tokens, prompt_tokens) -
                                     std::min(position, prompt_tokens);
    take_samples(sequence, result_.samples[i], position);
  }
  stepping_.clear();
  sweep();
  keep_ahead();
  admission_paused_ = false;
  parts_.cache.check_counters();
  const uint32_t every = options_.preempt_every_steps;
  if (every != 0 && counters_.steps % every == 0 && !running_.empty()) {
    preempt(*running_[counters_.steps / every % running_.size()]);
  }
}

void StepLoop::take_samples(LiveSequence& sequence, const std::vector<model::SampleResult>& samples,
                            uint32_t first_position) {
  LiveRequest& request = *sequence.request;
  size_t next = 0;
  if (request.wants_scores()) {
    const uint32_t end =
        std::min(first_position + sequence.step_tokens + 1, request.prompt_tokens());
    for (uint32_t at = first_position + 1; at < end; ++at) {
      const model::SampleResult& score = samples[next++];
      request.prompt_scores[at] = {score.token, score.logprob, score.top};
    }
  }
  if (sequence.pages->size() < sequence.tokens.size()) return;  // more of the prompt to come
  if (request.request.stop.max_tokens == 0) {
    finish_all(request, FinishReason::kLength);
    return;
  }
  if (!request.answered) {
    trace_.waited(request, "prefill", request.started);
    request.first_token = parts_.loop.clock().now();
  }
  const std::span<const model::SampleResult> drawn = std::span(samples).subspan(next);
  CHECK(drawn.size() == sequence.choices_to_fork);
  std::vector<LiveSequence*> choices = fork(sequence);
  for (size_t i = 0; i < choices.size(); ++i) {
    ++counters_.generated_tokens;
    if (take_token(parts_.tokenizer, *choices[i], drawn[i], options_.context_tokens_max, outbox_)) {
      finish(*choices[i]);
    } else if (choices[i]->pages == nullptr) {
      wait_again(*choices[i]);
    }
  }
}

// Who has his answer finds it in the counters too.
void StepLoop::tell() {
  publish();
  outbox_.deliver();
}

void StepLoop::publish() {
  const cache::KvCacheStats cache = parts_.cache.stats();
  counters_.pools.clear();
  counters_.evicted_pages = 0;
  for (const cache::GroupStats& group : cache.groups) {
    counters_.pools.push_back({.capacity = group.capacity,
                               .free = group.free,
                               .writable = group.writable,
                               .sealed = group.sealed,
                               .filling = group.filling,
                               .orphaned = group.orphaned,
                               .pinned = group.pinned,
                               .page_bytes = group.page_bytes});
    counters_.evicted_pages += group.evicted;
  }
  trace_.evicted(counters_.evicted_pages);
  counters_.tree_nodes = cache.tree_nodes;
  counters_.tree_namespaces = cache.tree_namespaces;
  counters_.sessions = cache.sessions;
  publish_held();
  if (parts_.tiers != nullptr) {
    counters_.has_tiers = true;
    counters_.tiers = parts_.tiers->stats();
    if (parts_.ring != nullptr) counters_.ring = parts_.ring->stats();
  }
  counters_.swapped_bytes = thrash_.total_bytes();
  counters_.swapped_bytes_per_token = thrash_.bytes_per_token();
  counters_.turns_among = thrash_.streams_max();
  counters_.thrashed = thrash_.shrinks();
  counters_.running = static_cast<uint32_t>(running_.size());
  counters_.waiting = static_cast<uint32_t>(waiting_.size());
  const std::lock_guard lock(published_mutex_);
  published_ = counters_;
}

EngineStats StepLoop::stats() const {
  const std::lock_guard lock(published_mutex_);
  return published_;
}

}  // namespace spillway::scheduler
