// What the tree tells its policy, call by call.
#include <gtest/gtest.h>

#include <string>

#include "cache/lru_policy.h"
#include "cache_fixture.h"

namespace spillway::cache {
namespace {

// An LRU that writes down what it is told of pages.
class WritingPolicy final : public EvictionPolicy {
 public:
  explicit WritingPolicy(std::string& story) : story_(story) {}

  PageMemory admit(uint64_t key, uint32_t tenant, uint64_t now) override {
    story_ += "admit@" + std::to_string(now) + " ";
    lru_.admit(key, tenant, now);
    return remembers ? PageMemory{.last_use = 1, .uses = 5} : PageMemory{};
  }
  void found(const PageMemory& history, uint32_t pages, uint64_t now) override {
    story_ += "found" + std::to_string(pages) + "(" + std::to_string(history.uses) + " uses, " +
              std::to_string(history.last_use) + ")@" + std::to_string(now) + " ";
  }
  void used(uint64_t from, uint64_t to, uint32_t pages) override {
    story_ += "used" + std::to_string(pages) + "(" + std::to_string(from) + "-" +
              std::to_string(to) + ") ";
  }
  void gone(const EvictionCandidate& page) override {
    story_ += "gone(" + std::to_string(page.uses) + " uses, depth " +
              std::to_string(page.depth_pages) + ") ";
    lru_.gone(page);
  }
  void add(EvictionCandidate& page) override { lru_.add(page); }
  void update(EvictionCandidate& page) override { lru_.update(page); }
  void remove(EvictionCandidate& page) override { lru_.remove(page); }
  EvictionCandidate* victim() override { return lru_.victim(); }
  uint32_t size() const override { return lru_.size(); }

  bool remembers = false;

 private:
  std::string& story_;
  LruPolicy lru_;
};

class ToldPolicy : public testing::Test {
 protected:
  ToldPolicy() {
    auto policy = std::make_unique<WritingPolicy>(story_);
    policy_ = policy.get();
    KvCacheOptions options;
    kernels::KvGroupLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 2};
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, layout.page_bytes() * 20)));
    options.groups.push_back({layout, memory_.get(), 20});
    cache_ = std::make_unique<KvCache>(std::move(options), std::move(policy));
  }

  // What the policy was told while a prompt was begun, computed and released.
  std::string told(const std::vector<TokenId>& prompt) {
    auto sequence = cache_->begin(cache_->keys("", "", prompt), prompt);
    const auto rest = std::span(prompt).subspan(sequence->size());
    EXPECT_TRUE(cache_->reserve(*sequence, static_cast<uint32_t>(rest.size())));
    cache_->commit(*sequence, rest);
    cache_->release(std::move(sequence));
    return std::exchange(story_, {});
  }

  std::string story_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_{nullptr, &std::free};
  WritingPolicy* policy_ = nullptr;
  std::unique_ptr<KvCache> cache_;
};

TEST_F(ToldPolicy, of_pages_that_come_are_found_and_are_used) {
  const auto prompt = some_tokens(33, 1);
  EXPECT_EQ(told(prompt), "admit@0 admit@0 used2(0-1) ");
  EXPECT_EQ(told(prompt), "found2(1 uses, 1)@1 used2(1-2) ");
  const auto other = joined(std::span(prompt).first(16), some_tokens(17, 2));
  EXPECT_EQ(told(other), "found1(2 uses, 2)@2 admit@2 used1(0-3) used1(2-3) ");
  const auto longer = joined(prompt, some_tokens(16, 3));
  // From the end of the path: what was found in runs of equal history.
  EXPECT_EQ(told(longer),
            "found1(2 uses, 2)@3 found1(3 uses, 3)@3 admit@3 used1(0-4) used1(2-4) used1(3-4) ");
}

TEST_F(ToldPolicy, of_pages_that_go_with_all_their_uses) {
  const auto prompt = some_tokens(33, 1);
  told(prompt);
  told(prompt);
  cache_->clear();
  EXPECT_EQ(story_, "gone(2 uses, depth 2) gone(2 uses, depth 1) ");
}

TEST_F(ToldPolicy, and_believes_what_it_remembers_of_a_page) {
  policy_->remembers = true;
  EXPECT_EQ(told(some_tokens(17, 1)), "admit@0 used1(1-1) ");
  EXPECT_EQ(told(some_tokens(17, 1)), "found1(6 uses, 1)@1 used1(1-2) ");
}

TEST_F(ToldPolicy, of_one_use_when_two_compute_the_same_and_of_none_for_a_fork) {
  const auto prompt = some_tokens(17, 1);
  const PromptKeys keys = cache_->keys("", "", prompt);
  auto first = cache_->begin(keys, prompt), second = cache_->begin(keys, prompt);
  for (Sequence* sequence : {first.get(), second.get()}) {
    ASSERT_TRUE(cache_->reserve(*sequence, 17));
    cache_->commit(*sequence, prompt);
  }
  auto twin = cache_->fork(*first, [](uint32_t, kernels::PageId, kernels::PageId) {});
  for (auto* sequence : {&first, &second, &twin}) cache_->release(std::move(*sequence));
  EXPECT_EQ(std::exchange(story_, {}), "admit@0 used1(0-1) used1(1-2) used1(2-3) ");
  EXPECT_EQ(told(prompt), "found1(2 uses, 3)@3 used1(3-4) ");
}

}  // namespace
}  // namespace spillway::cache
