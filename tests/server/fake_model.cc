#include "tests/server/fake_model.h"

#include <boost/json.hpp>

namespace spillway::server {
namespace {

using scheduler::FinishReason;
using scheduler::Output;

const std::pair<std::string_view, model::TokenId> kControls[] = {
    {"<bos>", FakeTokenizer::kBos},
    {"<|im_start|>", FakeTokenizer::kStart},
    {"<|im_end|>", FakeTokenizer::kEnd}};

Result<std::string> render_chatml(const boost::json::object& context) {
  std::string out;
  for (const auto& item : context.at("messages").as_array()) {
    const auto& message = item.as_object();
    const auto& content = message.at("content");
    if (content.is_null()) return invalid_argument("content is none");
    out += "<|im_start|>" + std::string(message.at("role").as_string()) + "\n" +
           std::string(content.as_string()) + "<|im_end|>\n";
  }
  if (context.contains("tools")) out += "[tools]";
  if (context.at("add_generation_prompt").as_bool()) out += "<|im_start|>assistant\n";
  return out;
}

}  // namespace

std::vector<model::TokenId> FakeTokenizer::encode(std::string_view text,
                                                  model::EncodeOptions options) const {
  std::vector<model::TokenId> out;
  if (options.add_special && !(options.parse_special && text.starts_with("<bos>"))) {
    out.push_back(kBos);
  }
  for (size_t at = 0; at < text.size();) {
    const std::pair<std::string_view, model::TokenId>* found = nullptr;
    for (const auto& control : kControls) {
      if (options.parse_special && text.substr(at).starts_with(control.first)) found = &control;
    }
    out.push_back(found ? found->second : static_cast<unsigned char>(text[at]));
    at += found ? found->first.size() : 1;
  }
  return out;
}

std::string_view FakeTokenizer::piece(model::TokenId token, bool show_control) const {
  static const std::string bytes = [] {
    std::string all(256, '\0');
    for (int i = 0; i < 256; ++i) all[static_cast<size_t>(i)] = static_cast<char>(i);
    return all;
  }();
  if (token < 256) return std::string_view(bytes).substr(static_cast<size_t>(token), 1);
  return show_control ? kControls[token - 256].first : std::string_view();
}

std::string FakeTokenizer::decode(const std::vector<model::TokenId>& tokens,
                                  bool show_control) const {
  std::string out;
  for (const auto token : tokens) out += piece(token, show_control);
  return out;
}

FakeBackend::FakeBackend() : thread_([this] { run(); }) {}

FakeBackend::~FakeBackend() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<scheduler::RequestId> FakeBackend::submit(scheduler::Request request,
                                                 std::shared_ptr<scheduler::OutputSink> sink) {
  if (full) {
    ++refused;
    return Error{ErrorCode::kResourceExhausted, "too many requests wait; try again later"};
  }
  const std::lock_guard lock(mutex_);
  const auto id = scheduler::RequestId{next_id_++};
  seen_.push_back(request);
  for (int i = 0; request.report_waiting && i < reports; ++i) {
    Output output;
    output.request = id;
    output.waiting = scheduler::Waiting{
        .state = scheduler::WaitState::kLoading, .prompt_tokens = 20, .nvme_tokens_left = 16};
    sink->on_output(std::move(output));
  }
  const auto first = std::chrono::steady_clock::now() + std::chrono::milliseconds(first_ms);
  live_[id] = {.request = std::move(request), .sink = std::move(sink), .next = first};
  ++running;
  changed_.notify_all();
  return id;
}

void FakeBackend::cancel(scheduler::RequestId request) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(request);
  if (it == live_.end()) return;
  it->second.cancelled = true;
  changed_.notify_all();
}

void FakeBackend::reset_prefix_cache(std::function<void(uint64_t)> then) {
  const std::lock_guard lock(mutex_);
  resets_.push_back(std::move(then));
  changed_.notify_all();
}

std::vector<std::optional<std::string>> FakeBackend::trace_tenants() const {
  const std::lock_guard lock(mutex_);
  return trace_tenants_;
}

void FakeBackend::take_trace(Clock::TimePoint begin, std::optional<std::string> tenant,
                             std::function<void(TraceSnapshot)> then) {
  const std::lock_guard lock(mutex_);
  trace_tenants_.push_back(std::move(tenant));
  takes_.push_back([this, begin, then = std::move(then)] {
    const auto ms = [&](int at) { return begin + std::chrono::milliseconds(at); };
    TraceSnapshot taken{.begin = begin, .end = ms(100), .events = {}, .lost = 0};
    taken.events.push_back(
        {.name = "decode", .lane = TraceLane::kSteps, .begin = ms(1), .end = ms(2)});
    taken.events.push_back(
        {.name = "read", .lane = TraceLane::kReads, .begin = ms(-1), .end = ms(1), .result = "ok"});
    ++traces_taken;
    then(std::move(taken));
  });
  changed_.notify_all();
}

void FakeBackend::prefetch(const std::string& session) {
  const std::lock_guard lock(mutex_);
  prefetched_.push_back(session);
}

std::vector<std::string> FakeBackend::prefetched() const {
  const std::lock_guard lock(mutex_);
  return prefetched_;
}

void FakeBackend::pins(const std::string& tenant, std::function<void(scheduler::PinList)> then) {
  scheduler::PinList list;
  list.limit_pages = 25;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, tokens] : pins_) {
      if (key.first != tenant) continue;
      list.pins.push_back({.id = key.second,
                           .tokens = tokens,
                           .pages = tokens / 16,
                           .device_tokens = tokens,
                           .seconds_left = 60});
      list.pinned_pages += tokens / 16;
    }
  }
  then(std::move(list));
}

void FakeBackend::unpin(const std::string& tenant, const std::string& id,
                        std::function<void(bool)> then) {
  bool found = false;
  {
    const std::lock_guard lock(mutex_);
    found = pins_.erase({tenant, id}) > 0;
  }
  then(found);
}

scheduler::EngineStats FakeBackend::stats() const {
  scheduler::EngineStats stats;
  stats.pools.push_back({.capacity = 100, .free = 60, .sealed = 40, .page_bytes = 4096});
  stats.running = static_cast<uint32_t>(running);
  return stats;
}

std::vector<scheduler::Request> FakeBackend::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void FakeBackend::end(scheduler::RequestId id, Live& live, FinishReason reason) {
  for (uint32_t choice = 0; choice < live.request.choices; ++choice) {
    Output output;
    output.request = id;
    output.choice = choice;
    output.finish = reason;
    if (reason == FinishReason::kError) output.error = "the fake engine failed";
    output.done = choice + 1 == live.request.choices;
    output.usage.prompt_tokens = static_cast<uint32_t>(live.request.prompt.size());
    output.usage.cached_tokens = output.usage.prompt_tokens / 16 * 16;
    output.usage.completion_tokens = live.produced * live.request.choices;
    if (live.request.pin && output.done) {
      const uint32_t tokens = output.usage.prompt_tokens / 16 * 16;
      output.pin = scheduler::PinOutcome{.result = scheduler::PinResult(pin_result.load()),
                                         .tokens = tokens,
                                         .pages = tokens / 16,
                                         .pinned_pages = 20,
                                         .limit_pages = 25};
      if (pin_result == 0) pins_[{live.request.tenant, live.request.pin->id}] = tokens;
    }
    live.sink->on_output(std::move(output));
  }
  --running;
  if (reason == FinishReason::kCancelled) ++cancelled;
}

bool FakeBackend::step(scheduler::RequestId id, Live& live) {
  if (live.cancelled) {
    end(id, live, FinishReason::kCancelled);
    return true;
  }
  if (live.produced == 0 && live.request.prompt_logprobs) {
    Output output;
    output.request = id;
    for (const auto token : live.request.prompt) {
      output.prompt_tokens.push_back({.token = token, .logprob = -0.5f, .top = {}});
    }
    live.sink->on_output(std::move(output));
  }
  if (fail_after_tokens >= 0 && live.produced >= static_cast<uint32_t>(fail_after_tokens)) {
    end(id, live, FinishReason::kError);
    return true;
  }
  if (live.produced == live.request.stop.max_tokens) {
    end(id, live, FinishReason::kLength);
    return true;
  }
  const char letter =
      live.produced % 2 == 0 ? static_cast<char>('a' + live.produced / 2 % 26) : ' ';
  for (uint32_t choice = 0; choice < live.request.choices; ++choice) {
    Output output;
    output.request = id;
    output.choice = choice;
    output.text = std::string(1, letter);
    scheduler::OutputToken token{.token = letter, .logprob = -0.25f, .top = {}};
    for (uint32_t i = 0; i < live.request.logprobs.value_or(0); ++i) {
      token.top.push_back({static_cast<model::TokenId>('0' + i), -1.0f - float(i)});
    }
    output.tokens.push_back(std::move(token));
    live.sink->on_output(std::move(output));
  }
  ++live.produced;
  live.next = std::chrono::steady_clock::now() + std::chrono::milliseconds(token_ms);
  return false;
}

void FakeBackend::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    for (auto& then : std::exchange(resets_, {})) then(40);
    for (auto& take : std::exchange(takes_, {})) take();
    auto next = std::chrono::steady_clock::now() + std::chrono::hours(1);
    const auto now = std::chrono::steady_clock::now();
    for (auto it = live_.begin(); it != live_.end();) {
      const bool due = it->second.cancelled || it->second.next <= now;
      if (due && step(it->first, it->second)) {
        it = live_.erase(it);
        continue;
      }
      next = std::min(next, it->second.next);
      ++it;
    }
    if (next > now) changed_.wait_until(lock, next);
  }
}

std::shared_ptr<ServedModel> make_fake_model(std::shared_ptr<FakeBackend> backend) {
  auto model = std::make_shared<ServedModel>();
  model->names = {"fake", "fake-alias"};
  model->path = "fake.gguf";
  model->context_tokens_max = 4096;
  model->tokenizer = std::make_shared<FakeTokenizer>();
  model->render_chat = render_chatml;
  model->backend = std::move(backend);
  prepare_served_model(*model);
  return model;
}

}  // namespace spillway::server
