#include "command_driver.h"

#include <algorithm>
#include <stdexcept>

namespace spillway::cache {
namespace {

constexpr uint32_t kPage = TestCache::kPageTokens;
constexpr size_t kLiveMax = 8;
constexpr size_t kEndedMax = 6;

void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// Few different pages, so that prompts share prefixes of every length and part at page edges and
// within pages; and short prompts with many different first pages, so that chains of equal hashes
// grow long where all are equal.
std::vector<TokenId> prompt_of(uint8_t pattern, uint8_t length) {
  const bool parts_at_once = pattern >= 0xa0;
  std::vector<TokenId> tokens(1 + length % (parts_at_once ? 2 * kPage + 8 : 9 * kPage));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t page = i / kPage;
    tokens[i] = static_cast<TokenId>((pattern >> (page % 4)) & 1);
    if (pattern >= 0x80 && i % kPage == page) tokens[i] += pattern >> 3;
  }
  return tokens;
}

std::string tenant_of(uint8_t a) { return a % 4 == 3 ? "other" : "one"; }

}  // namespace

CommandDriver::CommandDriver(const CacheShape& shape) : real_(shape), naive_(shape) {
  if (shape.policy == EvictionPolicyKind::kLru) return;
  naive_.follow(&real_.gone(), [this](const std::string& tenant, const std::vector<TokenId>& path) {
    return real_.keys(path, tenant).pages.back().low;
  });
}

CommandDriver::~CommandDriver() {
  if (live_.empty()) return;
  for (auto& live : live_) static_cast<void>(live->real.sequence.release());
  real_.leak();
}

void CommandDriver::begin(const std::string& tenant, const std::vector<TokenId>& prompt,
                          uint32_t cached_max) {
  if (live_.size() >= kLiveMax) return;
  compare_match(tenant, prompt);
  auto live = std::make_unique<Live>();
  live->naive = naive_.begin(tenant, prompt, cached_max);
  const uint32_t cached = static_cast<uint32_t>(live->naive->tokens.size());
  live->real = real_.begin(prompt, tenant, cached_max);
  live_.push_back(std::move(live));
  require(live_.back()->real.sequence->cached_tokens() == cached, "begin: another match");
  live_.back()->pending.assign(prompt.begin() + cached, prompt.end());
}

void CommandDriver::extend(Live& live, const Command& command) {
  std::vector<TokenId> tokens = live.pending;
  const size_t count = 1 + command.c % 70;
  if (!tokens.empty()) {
    tokens.resize(std::min(tokens.size(), count));
  } else {
    tokens.assign(1 + count % 20, command.b % 3);
  }
  const uint32_t size = static_cast<uint32_t>(tokens.size());
  const bool reserved = real_.cache().reserve(*live.real.sequence, size);
  const bool expected = naive_.reserve(live.naive, size);
  require(reserved == expected, "reserve: another answer");
  if (!expected) return;
  naive_.commit(live.naive, tokens);
  require(real_.extend(live.real, tokens, size), "extend: reserved pages are gone");
  const size_t done = std::min<size_t>(live.pending.size(), size);
  live.pending.erase(live.pending.begin(), live.pending.begin() + static_cast<ptrdiff_t>(done));
}

void CommandDriver::fork(Live& live) {
  if (live_.size() >= kLiveMax) return;
  NaiveCache::Handle handle;
  TestSequence twin = real_.fork(live.real);
  const bool expected = naive_.fork(live.naive, handle);
  require((twin.sequence != nullptr) == expected, "fork: another answer");
  if (!expected) return;
  auto made = std::make_unique<Live>();
  made->real = std::move(twin);
  made->naive = handle;
  made->pending = live.pending;
  live_.push_back(std::move(made));
}

void CommandDriver::release(size_t index, const std::string& session) {
  std::unique_ptr<Live> live = std::move(live_[index]);
  live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
  ended_.emplace_back(live->real.tenant, live->real.tokens);
  if (ended_.size() > kEndedMax) ended_.erase(ended_.begin());
  naive_.release(live->naive, session);
  real_.release(std::move(live->real), session);
}

void CommandDriver::preempt(size_t index) {
  const std::string tenant = live_[index]->real.tenant;
  const std::vector<TokenId> tokens = joined(live_[index]->real.tokens, live_[index]->pending);
  release(index, {});
  if (!tokens.empty()) begin(tenant, tokens);
}

void CommandDriver::pin_prefix(const std::string& name, const Command& command) {
  const auto& [tenant, whole] = ended_[command.a % ended_.size()];
  const std::vector<TokenId> tokens(whole.begin(), whole.begin() + command.c % (whole.size() + 1));
  const bool expected =
      real_.has_prefix_caching() && naive_.pin_prefix("pinned " + name, tenant, tokens);
  const bool pinned = real_.cache().pin_prefix(name, real_.keys(tokens, tenant), tokens);
  require(pinned == expected, "pin_prefix: another answer");
}

bool CommandDriver::run(const Command& command) {
  const size_t index = live_.empty() ? 0 : command.a % live_.size();
  const std::string session = "session " + std::to_string(command.b % 3);
  if (command.op == Op::kBegin) {
    const uint32_t cached_max = command.a % 8 == 6 ? command.a : UINT32_MAX;
    begin(tenant_of(command.a), prompt_of(command.b, command.c), cached_max);
  } else if (command.op == Op::kContinue) {
    if (ended_.empty()) return false;
    const auto& [tenant, tokens] = ended_[command.a % ended_.size()];
    begin(tenant, joined(tokens, prompt_of(command.b, command.c % 40)));
  } else if (command.op == Op::kEndSession) {
    naive_.end_session(session);
    real_.cache().end_session(session);
  } else if (command.op == Op::kClear) {
    const uint64_t cleared = real_.cache().clear();
    require(cleared == naive_.clear(), "clear: another number of pages");
  } else if (command.op == Op::kPinPrefix) {
    if (ended_.empty()) return false;
    pin_prefix(session, command);
  } else if (command.op == Op::kUnpinPrefix) {
    naive_.end_session("pinned " + session);
    real_.cache().unpin_prefix(session);
  } else if (live_.empty()) {
    return false;
  } else if (command.op == Op::kExtend) {
    extend(*live_[index], command);
  } else if (command.op == Op::kReserve) {
    const uint32_t count = 1 + command.c % 50;
    const bool reserved = real_.cache().reserve(*live_[index]->real.sequence, count);
    require(reserved == naive_.reserve(live_[index]->naive, count), "reserve: another answer");
  } else if (command.op == Op::kFork) {
    fork(*live_[index]);
  } else if (command.op == Op::kRelease) {
    release(index, {});
  } else if (command.op == Op::kHold) {
    release(index, session);
  } else if (command.op == Op::kPreempt) {
    preempt(index);
  } else if (command.op == Op::kBreakpoint) {
    const uint32_t position = live_[index]->real.sequence->size() + command.c % 64;
    naive_.keep_breakpoint(live_[index]->naive, position);
    real_.cache().keep_breakpoint(*live_[index]->real.sequence, position);
  }
  compare_all();
  return true;
}

void CommandDriver::compare_counts() const {
  const KvCacheStats stats = real_.cache().stats();
  const PageCounts available = real_.cache().pages_available();
  for (uint32_t g = 0; g < naive_.groups(); ++g) {
    require(stats.groups[g].sealed == naive_.sealed(g), "sealed pages differ");
    require(stats.groups[g].writable == naive_.writable(g), "writable pages differ");
    require(stats.groups[g].pinned == naive_.pinned(g), "pinned pages differ");
    require(available[g] == naive_.available(g), "available pages differ");
  }
  require(stats.sequences == live_.size(), "sequences differ");
  require(stats.sessions == naive_.sessions(), "sessions differ");
  require(stats.pinned_prefixes == naive_.pinned_prefixes(), "pinned prefixes differ");
  require(stats.tree_namespaces == naive_.tenants(), "namespaces differ");
}

void CommandDriver::compare_match(const std::string& tenant,
                                  const std::vector<TokenId>& tokens) const {
  if (tokens.empty()) return;
  const PromptKeys keys = real_.keys(tokens, tenant);
  const Peek peek = real_.cache().peek(keys, tokens);
  require(peek.cached_tokens == naive_.match_pages(tenant, tokens) * kPage, "match differs");
  require(peek.unpinned == naive_.unpinned(tenant, tokens), "unpinned pages of a match differ");
}

void CommandDriver::compare_all() {
  std::vector<TestSequence*> sequences;
  for (auto& live : live_) sequences.push_back(&live->real);
  const std::string problem = real_.problem(sequences);
  require(problem.empty(), problem.c_str());
  real_.cache().check_counters();
  compare_counts();
  check_version();
  if (real_.follows()) require(real_.gone().empty(), "pages went that the model still has");
  real_.gone().clear();
  for (const auto& [tenant, tokens] : ended_) compare_match(tenant, tokens);
  for (const auto& live : live_) {
    compare_match(live->real.tenant, joined(live->real.tokens, prompt_of(0, 0)));
  }
}

// An engine that has seen a version need not ask again.
void CommandDriver::check_version() {
  std::vector<uint32_t> probes;
  for (uint8_t pattern : {0x00, 0x01, 0x05, 0x0a, 0x0f, 0xc5}) {
    const std::vector<TokenId> prompt = prompt_of(pattern, 140);
    const Peek peek = real_.cache().peek(real_.keys(prompt, "one"), prompt);
    probes.insert(probes.end(), peek.unpinned.begin(), peek.unpinned.end());
    probes.push_back(peek.cached_tokens);
  }
  const uint64_t version = real_.cache().version();
  require(version != version_ || probes == probes_ || probes_.empty(),
          "a match changed and the version did not");
  version_ = version;
  probes_ = probes;
}

void CommandDriver::finish() {
  while (!live_.empty()) {
    release(live_.size() - 1, {});
    compare_all();
  }
  for (int i = 0; i < 3; ++i) {
    real_.cache().end_session("session " + std::to_string(i));
    real_.cache().unpin_prefix("session " + std::to_string(i));
  }
  real_.cache().clear();
  const KvCacheStats stats = real_.cache().stats();
  for (const GroupStats& group : stats.groups) {
    require(group.free == group.capacity, "idle is not as the baseline: pages leak");
  }
  require(stats.tree_nodes == 0, "idle is not as the baseline: nodes leak");
  require(stats.tree_namespaces == 0, "idle is not as the baseline: namespaces leak");
  require(stats.sessions == 0, "idle is not as the baseline: sessions leak");
}

std::optional<std::string> run_commands(const CacheShape& shape,
                                        std::span<const Command> commands) {
  auto driver = std::make_unique<CommandDriver>(shape);
  std::string context;
  try {
    for (size_t i = 0; i < commands.size(); ++i) {
      context = "after command " + std::to_string(i) + ": ";
      driver->run(commands[i]);
    }
    context = "at the end: ";
    driver->finish();
  } catch (const std::logic_error& error) {
    static_cast<void>(driver.release());
    return context + error.what();
  }
  return std::nullopt;
}

}  // namespace spillway::cache
