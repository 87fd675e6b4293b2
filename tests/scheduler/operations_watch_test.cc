// The watch of the order of operations is shown wrong orders, which the engine never gives: each is
// reported. (A page that is sealed too early ends a run at a CHECK of the cache before the watch
// has a look, so that no fault of the engine alone shows it.)
#include "tests/scheduler/operations_watch.h"

#include <gtest/gtest.h>

#include <memory>

namespace spillway::scheduler {
namespace {

constexpr uint32_t kPages = 8;

class Watched : public testing::Test {
 protected:
  Watched() {
    const kernels::KvGroupLayout& layout = runner_.shape().groups[0];
    memory_ = *device_.allocate(kPages * layout.page_bytes());
    other_ = *device_.allocate(layout.page_bytes());
    runner_.bind_pages({memory_.data});
    cache::KvCacheOptions options;
    options.fingerprint = "watched";
    options.groups.push_back({layout, memory_.data, kPages});
    cache_ = std::make_unique<cache::KvCache>(
        std::move(options),
        cache::make_eviction_policy(cache::EvictionPolicyKind::kLru, {.capacity = kPages}));
    watch_ = std::make_unique<OperationsWatch>(
        *cache_, device_, runner_,
        std::vector<OperationsWatch::Pool>{{memory_.data, layout.page_bytes(), kPages}});
    for (uint32_t i = 0; i < 2 * layout.page_tokens; ++i) tokens_.push_back(1 + i % 20);
    sequence_ = cache_->begin(cache_->keys("", "", tokens_), tokens_);
    EXPECT_TRUE(cache_->reserve(*sequence_, static_cast<uint32_t>(tokens_.size())));
  }
  ~Watched() override { cache_->release(std::move(sequence_)); }

  std::byte* page(uint32_t at) { return cache_->page_data(0, sequence_->table(0)[at]); }
  // A step that writes all of the sequence's pages is enqueued.
  void enqueue_step() {
    model::SequenceStep step;
    step.tokens = tokens_;
    step.tables.push_back(sequence_->table(0));
    batch_.sequences.push_back(std::move(step));
    runner_.enqueue(batch_, result_);
  }
  void copy(kernels::Stream& stream, std::byte* to, const std::byte* from) {
    stream.copy(to, from, runner_.shape().groups[0].page_bytes());
  }
  std::string look() { return watch_->look(false); }

  sim::SimDevice device_{1};
  sim::FakeRunner runner_{device_, 0, 256};
  kernels::DeviceMemory memory_, other_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<OperationsWatch> watch_;
  std::vector<model::TokenId> tokens_;
  std::unique_ptr<cache::Sequence> sequence_;
  model::StepBatch batch_;
  model::StepResult result_;
};

TEST_F(Watched, a_step_alone_and_what_is_stored_after_it_are_in_order) {
  enqueue_step();
  EXPECT_EQ(look(), "");
  while (device_.run_one()) {
  }
  cache_->commit(*sequence_, tokens_);
  copy(device_.copy_out(), other_.data, page(0));
  EXPECT_EQ(look(), "");
}

// case K3
TEST_F(Watched, a_page_that_is_stored_before_it_is_sealed_is_reported) {
  copy(device_.copy_out(), other_.data, page(1));
  EXPECT_NE(look().find("K3: stored"), std::string::npos) << look();
}

// case K3
TEST_F(Watched, a_page_that_is_stored_before_a_copy_has_filled_it_is_reported) {
  cache_->commit(*sequence_, tokens_);
  copy(device_.compute(), page(0), other_.data);
  copy(device_.copy_out(), other_.data, page(0));
  EXPECT_NE(look().find("K3: stored before it is copied"), std::string::npos) << look();
}

// cases K2, K3: sealed before the step that writes it has run.
TEST_F(Watched, a_page_that_is_sealed_while_a_step_still_writes_it_is_reported) {
  enqueue_step();
  cache_->commit(*sequence_, tokens_);
  copy(device_.copy_out(), other_.data, page(0));
  EXPECT_NE(look().find("K2: a step writes"), std::string::npos) << look();
}

// case K4
TEST_F(Watched, a_copy_into_a_page_that_a_step_writes_is_reported) {
  enqueue_step();
  copy(device_.copy_in(), page(0), other_.data);
  EXPECT_NE(look().find("K4: a copy fills"), std::string::npos) << look();
}

}  // namespace
}  // namespace spillway::scheduler
