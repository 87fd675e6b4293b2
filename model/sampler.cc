#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/draw.h"
#include "model/softmax.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr uint32_t kSeenBit = 1u << 31;  // in counts: occurs in the prompt

// Bias, bans and penalties, applied to the row in place and taken back by the destructor.
class RowEdits {
 public:
  RowEdits(std::span<float> logits, SampleScratch& scratch) : logits_(logits), scratch_(scratch) {
    scratch_.edits.clear();
  }
  RowEdits(const RowEdits&) = delete;
  RowEdits& operator=(const RowEdits&) = delete;
  ~RowEdits() {
    for (auto edit = scratch_.edits.rbegin(); edit != scratch_.edits.rend(); ++edit) {
      logits_[static_cast<size_t>(edit->first)] = edit->second;
    }
  }

  void apply(const SampleRequest& request) {
    const SamplingParams& params = *request.params;
    for (const auto& [token, bias] : params.logit_bias) {
      if (in_row(token)) set(token, at(token) + bias);
    }
    for (const TokenId token : request.banned) {
      if (in_row(token)) set(token, kNegativeInfinity);
    }
    const bool repetition = params.repetition_penalty != 1.0f;
    const bool occurrence = params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f;
    if (repetition || occurrence) penalise(request, repetition);
  }

  bool any() const { return !scratch_.edits.empty(); }

 private:
  bool in_row(TokenId token) const {
    return token >= 0 && static_cast<size_t>(token) < logits_.size();
  }
  float at(TokenId token) const { return logits_[static_cast<size_t>(token)]; }

  void set(TokenId token, float value) {
    float& logit = logits_[static_cast<size_t>(token)];
    scratch_.edits.emplace_back(token, logit);
    if (logit == kNegativeInfinity || std::isnan(value)) value = kNegativeInfinity;
    logit = std::min(value, std::numeric_limits<float>::max());
  }

  void penalise(const SampleRequest& request, bool repetition) {
    scratch_.counts.resize(std::max(scratch_.counts.size(), logits_.size()));
    scratch_.seen.clear();
    auto note = [this](TokenId token) -> uint32_t* {
      if (!in_row(token)) return nullptr;
      uint32_t& count = scratch_.counts[static_cast<size_t>(token)];
      if (count == 0) scratch_.seen.push_back(token);
      return &count;
    };
    for (const TokenId token : request.output) {
      if (uint32_t* count = note(token)) ++*count;
    }
    if (repetition) {
      for (const TokenId token : request.prompt) {
        if (uint32_t* count = note(token)) *count |= kSeenBit;
      }
    }
    const SamplingParams& params = *request.params;
    for (const TokenId token : scratch_.seen) {
      const uint32_t count =
          std::exchange(scratch_.counts[static_cast<size_t>(token)], 0) & ~kSeenBit;
      float logit = at(token);
      if (logit == kNegativeInfinity) continue;
      if (repetition) {
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      }
      if (count > 0) {
        logit -= static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
      }
      set(token, logit);
    }
  }

  std::span<float> logits_;
  SampleScratch& scratch_;
};

// A draw at a temperature, with or without filters.
class Draw {
 public:
  Draw(std::span<const float> logits, float max, const SamplingParams& params,
       SampleScratch& scratch)
      : logits_(logits),
        max_(max),
        inverse_(inverse_temperature(params.temperature)),
        params_(params),
        scratch_(scratch) {}

  TokenId token(double uniform) {
    const bool top_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits_.size();
    const bool filtered = top_k || params_.min_p > 0 || params_.typical_p < 1 || params_.top_p < 1;
    if (!filtered) return from_all(uniform);
    gather(top_k);
    if (params_.typical_p < 1) keep_typical();
    if (params_.top_p < 1) keep_top_p();
    return from_candidates(uniform);
  }

 private:
  double weight(const Candidate& c) const { return softmax_weight(c.value, max_, inverse_); }

  double candidates_mass() const {
    double mass = 0;
    for (const Candidate& c : scratch_.candidates) mass += weight(c);
    return mass;
  }

  // What min-p and top-k leave, sorted; mass_ is its total weight. Where only top-p is to follow,
  // tokens too light to be in it stay out: n of them weigh less than half of what top-p drops.
  void gather(bool top_k) {
    std::vector<Candidate>& candidates = scratch_.candidates;
    if (top_k) {
      select_top(logits_, static_cast<size_t>(params_.top_k), candidates, scratch_.spare);
      while (candidates.size() > 1 && !(weight(candidates.back()) >= params_.min_p)) {
        candidates.pop_back();
      }
      mass_ = candidates_mass();
      return;
    }
    const double total =
        softmax_weights(logits_, max_, inverse_, scratch_.weights, scratch_.block_sums);
    const bool only_top_p = params_.min_p <= 0 && params_.typical_p >= 1;
    const double light = 0.5 * std::max(0.0, 1.0 - static_cast<double>(params_.top_p)) * total /
                         static_cast<double>(logits_.size());
    const float floor = std::min(1.0f, only_top_p ? static_cast<float>(light) : params_.min_p);
    candidates.clear();
    collect_from(std::max(floor, std::numeric_limits<float>::min()));
    sort_candidates(candidates, scratch_.spare);
    mass_ = only_top_p ? total : candidates_mass();
  }

  // All tokens of at least this weight, ascending.
  void collect_from(float floor) {
    const std::vector<float>& weights = scratch_.weights;
    for (size_t begin = 0; begin < weights.size(); begin += kSumBlock) {
      const size_t end = std::min(weights.size(), begin + kSumBlock);
      if (scratch_.block_sums[begin / kSumBlock] < floor) continue;  // most blocks, for most models
      for (size_t i = begin; i < end; ++i) {
        if (weights[i] >= floor)
          scratch_.candidates.push_back({logits_[i], static_cast<TokenId>(i)});
      }
    }
  }

  // Locally typical sampling (Meister et al. 2022): the tokens whose surprise is nearest to the
  // entropy, until they hold typical_p of the mass.
  void keep_typical() {
    std::vector<Candidate>& candidates = scratch_.candidates;
    std::vector<Candidate>& order = scratch_.order;
    const double log_mass = std::log(mass_);
    auto surprise = [&](const Candidate& c) {
      return log_mass - static_cast<double>((c.value - max_) * inverse_);
    };
    double entropy = 0;
    for (const Candidate& c : candidates) {
      const double share = weight(c) / mass_;
      if (share > 0) entropy += share * surprise(c);
    }
    order.clear();
    for (size_t i = 0; i < candidates.size(); ++i) {
      const double distance = std::fabs(surprise(candidates[i]) - entropy);
      order.push_back({-static_cast<float>(distance), static_cast<TokenId>(i)});
    }
    sort_candidates(order, scratch_.spare);
    double kept_mass = 0;
    size_t kept = 0;
    while (kept < order.size() && (kept == 0 || kept_mass < params_.typical_p * mass_)) {
      kept_mass += weight(candidates[static_cast<size_t>(order[kept++].token)]);
    }
    order.resize(kept);
    std::sort(order.begin(), order.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    for (size_t i = 0; i < kept; ++i)
      candidates[i] = candidates[static_cast<size_t>(order[i].token)];
    candidates.resize(kept);
    mass_ = candidates_mass();
  }

  void keep_top_p() {
    std::vector<Candidate>& candidates = scratch_.candidates;
    double kept_mass = 0;
    size_t kept = 0;
    while (kept < candidates.size() && (kept == 0 || kept_mass < params_.top_p * mass_)) {
      kept_mass += weight(candidates[kept++]);
    }
    candidates.resize(kept);
    mass_ = kept_mass;
  }

  TokenId from_candidates(double uniform) const {
    CHECK(!scratch_.candidates.empty());
    const double target = uniform * mass_;
    double passed = 0;
    for (const Candidate& c : scratch_.candidates) {
      passed += weight(c);
      if (passed > target) return c.token;
    }
    return scratch_.candidates.front().token;
  }

  // Inverts the cumulative distribution in token order: blocks first, then within one.
  TokenId from_all(double uniform) const {
    const double total =
        softmax_weights(logits_, max_, inverse_, scratch_.weights, scratch_.block_sums);
    const double target = uniform * total;
    double passed = 0;
    size_t block = 0;
    while (block + 1 < scratch_.block_sums.size() &&
           passed + scratch_.block_sums[block] <= target) {
      passed += scratch_.block_sums[block++];
    }
    const size_t begin = block * kSumBlock;
    const size_t end = std::min(logits_.size(), begin + kSumBlock);
    TokenId last = -1;  // rounding can leave the target just past the block's own sum
    for (size_t i = begin; i < end; ++i) {
      if (scratch_.weights[i] <= 0) continue;
      last = static_cast<TokenId>(i);
      passed += scratch_.weights[i];
      if (passed > target) break;
    }
    return last >= 0 ? last : static_cast<TokenId>(row_argmax(logits_));
  }

  std::span<const float> logits_;
  const float max_;
  const float inverse_;
  const SamplingParams& params_;
  SampleScratch& scratch_;
  double mass_ = 0;
};

TokenId lowest_allowed(size_t vocabulary, std::span<const TokenId> banned) {
  for (size_t i = 0; i < vocabulary; ++i) {
    const TokenId token = static_cast<TokenId>(i);
    if (std::find(banned.begin(), banned.end(), token) == banned.end()) return token;
  }
  return 0;
}

TokenId draw_token(std::span<float> logits, float raw_max, const SampleRequest& request,
                   uint32_t position, SampleScratch& scratch) {
  RowEdits edits(logits, scratch);
  edits.apply(request);
  const float max = edits.any() ? row_max(logits) : raw_max;
  if (max == kNegativeInfinity) return lowest_allowed(logits.size(), request.banned);
  const SamplingParams& params = *request.params;
  if (is_greedy(params)) return static_cast<TokenId>(row_argmax(logits));
  const double uniform = uniform_draw(params.seed, request.choice, position);
  return Draw(logits, max, params, scratch).token(uniform);
}

}  // namespace

bool is_greatest_alone(const SampleRequest& request) {
  if (request.params == nullptr || request.want_logprob || request.top_logprobs > 0) return false;
  const SamplingParams& params = *request.params;
  const bool edits = !params.logit_bias.empty() || !request.banned.empty() ||
                     params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
                     params.presence_penalty != 0.0f;
  return is_greedy(params) && !edits;
}

SampleResult sample_row(std::span<float> logits, const SampleRequest& request, uint32_t position,
                        SampleScratch& scratch) {
  CHECK(!logits.empty());
  CHECK(request.scored >= -1);
  CHECK(request.scored < static_cast<TokenId>(logits.size()));
  SampleResult result;
  const float max = clean_row(logits);
  result.token = request.params != nullptr ? draw_token(logits, max, request, position, scratch)
                                           : request.scored;
  const bool wanted = request.want_logprob || request.params == nullptr;
  if (!wanted && request.top_logprobs == 0) return result;

  const double log_sum = log_weight_sum(logits, max);
  auto logprob = [max, log_sum](float logit) { return token_logprob(logit, max, log_sum); };
  if (wanted && result.token >= 0) {
    result.logprob = logprob(logits[static_cast<size_t>(result.token)]);
    result.rank = static_cast<uint32_t>(rank_of(logits, result.token));
  }
  if (request.top_logprobs > 0) {
    select_top(logits, request.top_logprobs, scratch.candidates, scratch.spare);
    for (const Candidate& c : scratch.candidates) result.top.push_back({c.token, logprob(c.value)});
  }
  return result;
}

}  // namespace spillway::model
