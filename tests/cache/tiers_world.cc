#include "tiers_world.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/check.h"

namespace spillway::cache {

TiersWorld::TiersWorld(const TiersShape& shape, uint64_t seed)
    : shape_(shape), machine_(shape, seed) {
  open("test model");
}

TiersWorld::~TiersWorld() { close(); }

void TiersWorld::open(const std::string& fingerprint) {
  machine_.open(fingerprint);
  tiers().compute_rate().measured(0, 16, 1);  // so slow that all is loaded
}

void TiersWorld::close() {
  machine_.close([this] { EXPECT_EQ(tiers().check_integrity(), ""); });
}

void TiersWorld::close_tiers() { machine_.close_tiers(); }

void TiersWorld::restart(const std::string& fingerprint) {
  close();
  open(fingerprint);
}

bool TiersWorld::run_until(const std::function<bool()>& condition) {
  constexpr int kStepsMax = 1'000'000;
  for (int i = 0; i < kStepsMax; ++i) {
    if (condition()) return true;
    if (!machine_.go_on()) return condition();
  }
  ADD_FAILURE() << "this goes on for ever";
  return false;
}

Task<> TiersWorld::sleep(Clock::Duration time) {
  StopFlag never;
  co_await machine_.loop().sleep_for(time, never);
}

void TiersWorld::pass(Clock::Duration time) {
  machine_.run(sleep(time));
  while (machine_.step()) {
  }
}

void TiersWorld::settle() {
  if (shape_.scrub_pause.count() > 0) return pass(std::chrono::milliseconds(1));
  run_until([] { return false; });
}

TiersWorld::Asked TiersWorld::begin(const std::vector<TokenId>& prompt) {
  Asked asked;
  asked.prompt = prompt;
  asked.keys = cache().keys(prompt);
  asked.real = cache().begin(prompt);
  asked.load = tiers().begin_load(asked.keys, prompt, *asked.real.sequence, 1);
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
    if (asked.load != nullptr && tiers().adopt(*asked.load, *asked.real.sequence, tokens)) {
      const uint32_t size = asked.real.sequence->size();
      asked.real.tokens.assign(tokens.begin(), tokens.begin() + size);
    }
    const uint32_t size = asked.real.sequence->size();
    if (size == asked.prompt.size()) break;
    uint32_t until = UINT32_MAX;
    if (asked.load != nullptr) until = tiers().compute_until(*asked.load, size, 1);
    CHECK(until > size);
    const size_t end = std::min<size_t>(until, asked.prompt.size());
    CHECK(cache().extend(asked.real, tokens.subspan(size, end - size)));
  }
  TestSequence* const sequences[] = {&asked.real};
  EXPECT_EQ(cache().problem(sequences), "");
}

void TiersWorld::keep(const Asked& asked, bool running) {
  KeptPath path;
  const size_t whole = asked.prompt.size() / TestCache::kPageTokens * TestCache::kPageTokens;
  path.tokens.assign(asked.prompt.begin(),
                     asked.prompt.begin() + static_cast<std::ptrdiff_t>(whole));
  path.keys = cache().keys(path.tokens);
  path.running = running;
  tiers().keep(std::move(path));
}

void TiersWorld::release(Asked asked) {
  if (asked.load != nullptr) tiers().give_up(std::move(asked.load));
  cache().release(std::move(asked.real));
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
  EXPECT_EQ(tiers().check_integrity(), "");
  return came;
}

TiersWorld::Records TiersWorld::records(const std::vector<TokenId>& prompt) const {
  Records found;
  const PromptKeys keys = machine_.cache().keys(prompt);
  machine_.store()->for_each([&](const io::StoredPage& page) {
    const uint32_t at = page.name.position;
    if (at >= keys.pages.size()) return;
    const bool same =
        page.name.key[0] == keys.pages[at].low && page.name.key[1] == keys.pages[at].high;
    if (same) found.insert({at, page.name.group});
  });
  return found;
}

uint32_t TiersWorld::first_by_slot(const std::vector<TokenId>& prompt) const {
  const PromptKeys keys = machine_.cache().keys(prompt);
  auto first = std::pair(UINT32_MAX, 0u);
  machine_.store()->for_each([&](const io::StoredPage& page) {
    const uint32_t at = page.name.position;
    if (page.name.group > 0 || page.name.key[0] != keys.pages[at].low) return;
    first = std::min(first, std::pair(static_cast<uint32_t>(page.slot), at));
  });
  return first.second;
}

std::pair<io::SlotId, uint64_t> TiersWorld::stored_at(const std::vector<TokenId>& prompt,
                                                      uint32_t position, uint32_t group) {
  const PromptKeys keys = cache().keys(prompt);
  std::vector<std::pair<io::SlotId, uint64_t>> found;
  store().for_each([&](const io::StoredPage& page) {
    if (page.name.position == position && page.name.group == group &&
        page.name.key[0] == keys.pages[position].low) {
      found.emplace_back(page.slot, page.generation);
    }
  });
  CHECK(found.size() == 1);
  return found[0];
}

void TiersWorld::lose(const std::vector<TokenId>& prompt, uint32_t position, uint32_t group) {
  const auto [slot, generation] = stored_at(prompt, position, group);
  store().erase(slot, generation);
}

// Pages are what the file ends with.
void TiersWorld::rot(const std::vector<TokenId>& prompt, uint32_t position, uint32_t group) {
  const auto slot = static_cast<uint64_t>(stored_at(prompt, position, group).first);
  const io::BlockStoreStats stats = store().stats();
  const uint64_t pages = stats.file_bytes - stats.capacity_bytes;
  disk().files().find("store/pages.kv")->flip_bit(pages + slot * io::kSectorBytes + 100, 3);
}

std::vector<TokenId> prompt_of(uint32_t pages, uint32_t seed) {
  return some_tokens(pages * TestCache::kPageTokens + 1, seed);
}

TiersWorld::Records all_but(uint32_t pages, const std::set<uint32_t>& lost) {
  TiersWorld::Records records;
  for (uint32_t at = 0; at < pages; ++at) {
    if (!lost.contains(at)) records.insert({at, 0});
  }
  return records;
}

}  // namespace spillway::cache
