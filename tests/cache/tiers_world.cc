#include "tiers_world.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/check.h"
#include "runtime/scope.h"

namespace spillway::cache {

TiersWorld::TiersWorld(const TiersWorldOptions& options)
    : options_(options),
      device_(options.seed),
      parker_(clock_, device_, options.seed),
      loop_(clock_, parker_) {
  parker_.when_idle = [this] { idle_ = true; };
  open();
}

TiersWorld::~TiersWorld() { close(); }

Task<> TiersWorld::open_store() {
  io::BlockStoreOptions store;
  store.directory = "store";
  store.bytes = options_.nvme_bytes;
  std::set<uint32_t> sizes;
  for (uint32_t g = 0; g < real_->cache().groups(); ++g) {
    sizes.insert(static_cast<uint32_t>(real_->page_bytes(g)));
  }
  store.slot_bytes.assign(sizes.begin(), sizes.end());
  store.seed = 1;
  auto opened = co_await io::BlockStore::open(std::move(store), loop_, *disk_);
  EXPECT_TRUE(opened.has_value());
  if (opened) store_ = std::move(*opened);
}

void TiersWorld::open() {
  CacheShape shape = options_.cache;
  shape.secret = 77;
  real_ = std::make_unique<TestCache>(shape);
  disk_ = std::make_unique<sim::SimDisk>(loop_, files_, options_.seed);
  parker_.disk = disk_.get();
  run(open_store());
  CHECK(store_ != nullptr);
  size_t largest = 0;
  for (uint32_t g = 0; g < real_->cache().groups(); ++g) {
    largest = std::max(largest, real_->page_bytes(g));
  }
  TiersOptions tiers;
  tiers.write = options_.write;
  tiers.verify_all = true;
  tiers.load_bytes_max = options_.load_bytes_max;
  memory_.push_back(*device_.allocate(options_.staging_pages * largest));
  tiers.staging = {memory_.back().data, options_.staging_pages * largest};
  for (uint32_t g = 0; g < options_.host.size(); ++g) {
    memory_.push_back(*device_.allocate(options_.host[g] * real_->page_bytes(g)));
    tiers.host.push_back({memory_.back().data, options_.host[g]});
  }
  tiers_ = std::make_unique<Tiers>(
      tiers, Tiers::Parts{loop_, real_->cache(), device_, store_.get()}, [this](uint32_t pages) {
        return make_eviction_policy(options_.cache.policy, {.capacity = pages});
      });
  tiers_->compute_rate().measured(0, 16, 1);  // so slow that all is loaded
}

void TiersWorld::close() {
  run(tiers_->close());
  run(store_->close());
  run(disk_->drain());
  EXPECT_EQ(tiers_->check_integrity(), "");
  tiers_.reset();
  store_.reset();
  real_.reset();
  parker_.disk = nullptr;
  disk_.reset();
}

void TiersWorld::restart() {
  close();
  open();
}

void TiersWorld::run(Task<> task) {
  Scope scope(loop_.executor());
  scope.spawn(std::move(task));
  const bool ended = run_until([&] { return scope.running() == 0; });
  CHECK(ended);
}

bool TiersWorld::step() {
  if (loop_.run_one() || device_.run_one()) return true;
  return disk_ != nullptr && disk_->run_one();
}

bool TiersWorld::run_until(const std::function<bool()>& condition) {
  constexpr int kStepsMax = 1'000'000;
  idle_ = false;
  for (int i = 0; i < kStepsMax; ++i) {
    if (condition()) return true;
    if (step()) continue;
    if (idle_) return false;
    loop_.park();
  }
  ADD_FAILURE() << "this goes on for ever";
  return false;
}

TiersWorld::Asked TiersWorld::begin(const std::vector<TokenId>& prompt) {
  Asked asked;
  asked.prompt = prompt;
  asked.keys = real_->keys(prompt);
  asked.real = real_->begin(prompt);
  asked.load = tiers_->begin_load(asked.keys, prompt, *asked.real.sequence, 1);
  return asked;
}

void TiersWorld::bring_up(const Asked& asked) {
  if (asked.load == nullptr) return;
  run_until([&] {
    return std::all_of(asked.load->slots.begin(), asked.load->slots.end(), [](const auto& slot) {
      return slot.state == Load::State::kAbsent || slot.state == Load::State::kReady;
    });
  });
}

void TiersWorld::compute(Asked& asked) {
  const std::span<const TokenId> tokens(asked.prompt);
  for (;;) {
    if (asked.load != nullptr && tiers_->adopt(*asked.load, *asked.real.sequence, tokens)) {
      const uint32_t size = asked.real.sequence->size();
      asked.real.tokens.assign(tokens.begin(), tokens.begin() + size);
    }
    const uint32_t size = asked.real.sequence->size();
    if (size == asked.prompt.size()) break;
    uint32_t until = UINT32_MAX;
    if (asked.load != nullptr) until = tiers_->compute_until(*asked.load, size, 1);
    CHECK(until > size);
    const size_t end = std::min<size_t>(until, asked.prompt.size());
    CHECK(real_->extend(asked.real, tokens.subspan(size, end - size)));
  }
  TestSequence* const sequences[] = {&asked.real};
  EXPECT_EQ(real_->problem(sequences), "");
}

void TiersWorld::keep(const Asked& asked, bool running) {
  KeptPath path;
  const size_t whole = asked.prompt.size() / TestCache::kPageTokens * TestCache::kPageTokens;
  path.tokens.assign(asked.prompt.begin(),
                     asked.prompt.begin() + static_cast<std::ptrdiff_t>(whole));
  path.keys = real_->keys(path.tokens);
  path.running = running;
  tiers_->keep(std::move(path));
}

void TiersWorld::release(Asked asked) {
  if (asked.load != nullptr) tiers_->give_up(std::move(asked.load));
  real_->release(std::move(asked.real));
}

uint32_t TiersWorld::ask(const std::vector<TokenId>& prompt) {
  Asked asked = begin(prompt);
  bring_up(asked);
  compute(asked);
  uint32_t came = 0;
  if (asked.load != nullptr) {
    for (const uint32_t pages : asked.load->adopted) came += pages;
  }
  keep(asked);
  release(std::move(asked));
  settle();
  forget();
  EXPECT_EQ(tiers_->check_integrity(), "");
  return came;
}

TiersWorld::Records TiersWorld::records(const std::vector<TokenId>& prompt) const {
  Records found;
  const PromptKeys keys = real_->keys(prompt);
  store_->for_each([&](const io::StoredPage& page) {
    const uint32_t at = page.name.position;
    if (at >= keys.pages.size()) return;
    const bool same =
        page.name.key[0] == keys.pages[at].low && page.name.key[1] == keys.pages[at].high;
    if (same) found.insert({at, page.name.group});
  });
  return found;
}

void TiersWorld::lose(const std::vector<TokenId>& prompt, uint32_t position, uint32_t group) {
  const PromptKeys keys = real_->keys(prompt);
  std::vector<std::pair<io::SlotId, uint64_t>> found;
  store_->for_each([&](const io::StoredPage& page) {
    if (page.name.position == position && page.name.group == group &&
        page.name.key[0] == keys.pages[position].low) {
      found.emplace_back(page.slot, page.generation);
    }
  });
  ASSERT_EQ(found.size(), 1u);
  store_->erase(found[0].first, found[0].second);
}

}  // namespace spillway::cache
