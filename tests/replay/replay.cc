#include "replay.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>

#include "cache/kv_cache.h"
#include "lower_tier.h"
#include "observed_policy.h"
#include "optimum_policy.h"
#include "runtime/check.h"

namespace spillway::replay {
namespace {

using cache::PromptKeys;
using cache::TokenId;

constexpr uint32_t kPage = 16;

// A block's tokens; one more at the end, for the last token of a prompt is always computed.
std::vector<TokenId> tokens_of(const TracedRequest& request) {
  std::vector<TokenId> tokens(request.blocks.size() * kPage + 1);
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    tokens[i * kPage] = static_cast<TokenId>(request.blocks[i]);
  }
  return tokens;
}

double compute_seconds(const Costs& costs, double from, double to) {
  return ((to - from) + (to * to - from * from) / (2 * costs.double_cost_tokens)) /
         costs.tokens_per_second;
}

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options)
      : trace_(trace),
        options_(options),
        // One page more than the blocks, for the last token's.
        memory_(static_cast<std::byte*>(std::aligned_alloc(
                    kernels::kPageAlignment,
                    size_t{options.device_blocks + 1} * kernels::kPageAlignment)),
                &std::free),
        host_(options.host_blocks, make_policy(options.host_blocks),
              [this](const LowerTier::Block& block) { nvme_.put(block, now_); }),
        nvme_(options.nvme_blocks, make_policy(options.nvme_blocks), [](const auto&) {}) {
    cache::KvCacheOptions kv;
    kernels::KvGroupLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 2, .page_tokens = kPage};
    kv.groups.push_back({layout, memory_.get(), options.device_blocks + 1});
    kv.secret = 1;
    auto policy = std::make_unique<cache::ObservedPolicy>(
        options.policy ? make_policy(options.device_blocks)
                       : std::make_unique<OptimumPolicy>(uses_),
        [this](const cache::EvictionCandidate& page) {
          if (ended_) return;
          host_.put({page.key, parents_[page.key], page.depth_pages, page.uses, page.last_use},
                    now_);
        });
    cache_ = std::make_unique<cache::KvCache>(std::move(kv), std::move(policy));
    for (uint64_t i = 0; !options.policy && i < trace.size(); ++i) {
      for (const auto& key : keys_of(trace[i]).pages) uses_[key.low].push_back(i + 1);
    }
  }

  ~Replay() { ended_ = true; }
  Replay(const Replay&) = delete;

  ReplayResult run() {
    for (const TracedRequest& request : trace_) {
      ++now_;
      serve(request);
    }
    std::sort(result_.first_token_seconds.begin(), result_.first_token_seconds.end());
    return std::move(result_);
  }

 private:
  std::unique_ptr<cache::EvictionPolicy> make_policy(uint32_t blocks) const {
    const auto double_cost =
        static_cast<uint32_t>(options_.costs.double_cost_tokens / kBlockTokens);
    return cache::make_eviction_policy(
        options_.policy.value_or(cache::EvictionPolicyKind::kLru),
        {.capacity = blocks, .double_cost_pages = std::max(1u, double_cost)});
  }

  PromptKeys keys_of(const TracedRequest& request) const {
    return cache_->keys("", "", tokens_of(request));
  }

  void serve(const TracedRequest& request) {
    const std::vector<TokenId> tokens = tokens_of(request);
    const PromptKeys keys = cache_->keys("", "", tokens);
    auto sequence = cache_->begin(keys, tokens);
    const uint32_t on_device = sequence->size() / kPage;
    const double load_seconds = load(keys, on_device);
    const double input = request.input_tokens;
    const double from = std::min<double>(input, double{kBlockTokens} * found_);
    const double compute = compute_seconds(options_.costs, from, input);
    result_.blocks += request.blocks.size();
    result_.device += on_device;
    result_.compute_seconds += compute;
    result_.compute_seconds_cold += compute_seconds(options_.costs, 0, input);
    result_.first_token_seconds.push_back(load_seconds + compute);
    // Of a prompt that is longer than the device, what fits.
    const std::span<const TokenId> rest = std::span(tokens).subspan(sequence->size());
    const size_t room = size_t{options_.device_blocks} * kPage + 1 - sequence->size();
    const std::span<const TokenId> kept = rest.first(std::min(rest.size(), room));
    CHECK(cache_->reserve(*sequence, static_cast<uint32_t>(kept.size())));
    cache_->commit(*sequence, kept);
    cache_->release(std::move(sequence));
  }

  // Takes up what follows the device's part; seconds until it is there.
  double load(const PromptKeys& keys, uint32_t from) {
    const double block_bytes = options_.costs.bytes_per_token * kBlockTokens;
    uint32_t host = 0, nvme = 0;
    for (found_ = from; found_ < keys.pages.size(); ++found_) {
      const uint64_t key = keys.pages[found_].low;
      parents_[key] = found_ == 0 ? 0 : keys.pages[found_ - 1].low;
      if (host_.holds(key)) {
        host_.take(key, now_);
        ++host;
      } else if (nvme_.holds(key)) {
        nvme_.find(key, now_);
        ++nvme;
      } else {
        break;
      }
    }
    for (size_t i = found_; i < keys.pages.size(); ++i) {
      parents_[keys.pages[i].low] = i == 0 ? 0 : keys.pages[i - 1].low;
    }
    result_.host += host;
    result_.nvme += nvme;
    return host * block_bytes / options_.costs.host_bytes_per_second +
           nvme * block_bytes / options_.costs.nvme_bytes_per_second +
           (nvme > 0 ? options_.costs.nvme_seconds : 0);
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::unordered_map<uint64_t, uint64_t> parents_;  // of blocks, by key
  OptimumPolicy::Uses uses_;
  uint64_t now_ = 0;
  LowerTier host_, nvme_;
  std::unique_ptr<cache::KvCache> cache_;
  bool ended_ = false;
  uint32_t found_ = 0;  // blocks of the prompt at hand, in any tier
  ReplayResult result_;
};

}  // namespace

double ReplayResult::first_token(double quantile) const {
  if (first_token_seconds.empty()) return 0;
  const double at = quantile * static_cast<double>(first_token_seconds.size() - 1);
  return first_token_seconds[static_cast<size_t>(at)];
}

ReplayResult replay(const Trace& trace, const ReplayOptions& options) {
  return Replay(trace, options).run();
}

}  // namespace spillway::replay
