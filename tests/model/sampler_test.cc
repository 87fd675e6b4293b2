// The sampler against a plain twin that sorts everything, and the distribution of its draws.
#include "model/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "model/draw.h"
#include "model/softmax.h"

namespace spillway::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What sampler.h says, word by word, with a full sort and no reuse.
class Twin {
 public:
  static TokenId draw(std::vector<float> row, const SampleRequest& request, uint32_t position) {
    const SamplingParams& p = *request.params;
    for (float& x : row) x = std::isnan(x) ? -kInfinity : std::min(x, 3.402823466e38f);
    edit(row, request);
    std::vector<Candidate> sorted;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] > -kInfinity) sorted.push_back({row[i], static_cast<TokenId>(i)});
    }
    std::sort(sorted.begin(), sorted.end(), ranks_before);
    if (sorted.empty()) return first_allowed(row.size(), request.banned);
    if (p.temperature < 1e-5f) return sorted[0].token;

    const float max = sorted[0].value;
    const float inverse = std::max(1.0f / p.temperature, std::numeric_limits<float>::min());
    auto weight = [&](const Candidate& c) { return softmax_weight(c.value, max, inverse); };
    auto mass = [&] {
      double sum = 0;
      for (const Candidate& c : sorted) sum += weight(c);
      return sum;
    };
    size_t kept = 0;
    while (kept < sorted.size() && (kept == 0 || weight(sorted[kept]) >= p.min_p)) ++kept;
    sorted.resize(kept);
    if (p.top_k > 0 && static_cast<size_t>(p.top_k) < sorted.size()) {
      sorted.resize(static_cast<size_t>(p.top_k));
    }
    if (p.typical_p < 1) typical(sorted, p.typical_p, mass(), weight, max, inverse);
    if (p.top_p < 1) {
      const double total = mass();
      double sum = 0;
      kept = 0;
      while (kept < sorted.size() && (kept == 0 || sum < p.top_p * total)) {
        sum += weight(sorted[kept++]);
      }
      sorted.resize(kept);
    }
    const bool filtered = (p.top_k > 0 && static_cast<size_t>(p.top_k) < row.size()) ||
                          p.min_p > 0 || p.typical_p < 1 || p.top_p < 1;
    if (!filtered) {
      std::sort(sorted.begin(), sorted.end(),
                [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    }
    const double target = uniform_draw(p.seed, request.choice, position) * mass();
    double passed = 0;
    for (const Candidate& c : sorted) {
      passed += weight(c);
      if (passed > target) return c.token;
    }
    return sorted[0].token;
  }

 private:
  static void edit(std::vector<float>& row, const SampleRequest& request) {
    const SamplingParams& p = *request.params;
    const auto clamp = [](float x) { return std::min(x, 3.402823466e38f); };
    for (const auto& [token, bias] : p.logit_bias) row[token] = clamp(row[token] + bias);
    for (const TokenId token : request.banned) row[token] = -kInfinity;
    std::map<TokenId, int> output;
    for (const TokenId token : request.output) ++output[token];
    std::set<TokenId> all(request.output.begin(), request.output.end());
    all.insert(request.prompt.begin(), request.prompt.end());
    for (const TokenId token : all) {
      float& x = row[token];
      if (x == -kInfinity) continue;
      if (p.repetition_penalty != 1.0f) {
        x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
      }
      if (output.count(token) > 0) {
        x -= static_cast<float>(output[token]) * p.frequency_penalty + p.presence_penalty;
      }
      x = clamp(x);
    }
  }

  static TokenId first_allowed(size_t vocabulary, std::span<const TokenId> banned) {
    const std::set<TokenId> set(banned.begin(), banned.end());
    for (TokenId i = 0; i < static_cast<TokenId>(vocabulary); ++i) {
      if (set.count(i) == 0) return i;
    }
    return 0;
  }

  template <class Weight>
  static void typical(std::vector<Candidate>& sorted, float typical_p, double total, Weight weight,
                      float max, float inverse) {
    auto surprise = [&](const Candidate& c) {
      return std::log(total) - static_cast<double>((c.value - max) * inverse);
    };
    double entropy = 0;
    for (const Candidate& c : sorted) {
      if (weight(c) > 0) entropy += weight(c) / total * surprise(c);
    }
    std::vector<Candidate> order = sorted;
    auto distance = [&](const Candidate& c) {
      return static_cast<float>(std::fabs(surprise(c) - entropy));
    };
    std::sort(order.begin(), order.end(), [&](const Candidate& a, const Candidate& b) {
      return distance(a) != distance(b) ? distance(a) < distance(b) : ranks_before(a, b);
    });
    double sum = 0;
    size_t kept = 0;
    while (kept < order.size() && (kept == 0 || sum < typical_p * total)) {
      sum += weight(order[kept++]);
    }
    order.resize(kept);
    std::sort(order.begin(), order.end(), ranks_before);
    sorted = order;
  }
};

std::vector<float> arbitrary_row(size_t size) {
  // Steps of 1/4 make ties common; a few rows carry what no model should give.
  std::vector<float> row;
  const bool hostile = *rc::gen::weightedElement<bool>({{4, false}, {1, true}});
  const int spread = *rc::gen::element(1, 8, 60, 400);
  for (size_t i = 0; i < size; ++i) {
    const int step = *rc::gen::inRange(-spread, spread + 1);
    row.push_back(static_cast<float>(step) * 0.25f);
    if (hostile && *rc::gen::inRange(0, 8) == 0) {
      row.back() = *rc::gen::element(kNan, kInfinity, -kInfinity, 3.4e38f, -3.4e38f);
    }
  }
  return row;
}

std::vector<TokenId> arbitrary_tokens(size_t vocabulary) {
  return *rc::gen::container<std::vector<TokenId>>(
      rc::gen::inRange<TokenId>(0, static_cast<TokenId>(vocabulary)));
}

SamplingParams arbitrary_params(size_t vocabulary) {
  SamplingParams p;
  p.temperature = *rc::gen::element(0.0f, 1e-4f, 0.3f, 0.7f, 1.0f, 2.0f, 100.0f, kInfinity);
  p.top_k = *rc::gen::element(0, 0, 1, 2, 5, 40, 100000);
  p.top_p = *rc::gen::element(1.0f, 1.0f, 0.0f, 0.1f, 0.5f, 0.9f, 0.999f);
  p.min_p = *rc::gen::element(0.0f, 0.0f, 0.05f, 0.5f, 1.0f);
  p.typical_p = *rc::gen::element(1.0f, 1.0f, 0.2f, 0.9f);
  p.repetition_penalty = *rc::gen::element(1.0f, 1.0f, 1.3f, 0.5f);
  p.frequency_penalty = *rc::gen::element(0.0f, 0.5f, -1.0f);
  p.presence_penalty = *rc::gen::element(0.0f, 1.5f, -0.25f);
  p.seed = *rc::gen::arbitrary<uint64_t>();
  for (const TokenId token : arbitrary_tokens(vocabulary)) {
    if (p.logit_bias.size() == 4) break;
    p.logit_bias.emplace_back(token, *rc::gen::element(-100.0f, 100.0f, 0.75f));
  }
  return p;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
         });
}

RC_GTEST_PROP(Sampler, draws_what_the_plain_twin_draws, ()) {
  const size_t size = *rc::gen::element<size_t>(1, 2, 7, 64, 65, 300, 2500);
  const std::vector<float> row = arbitrary_row(size);
  const SamplingParams params = arbitrary_params(size);
  const std::vector<TokenId> prompt = arbitrary_tokens(size);
  const std::vector<TokenId> output = arbitrary_tokens(size);
  const std::vector<TokenId> banned = arbitrary_tokens(size);
  SampleRequest request;
  request.params = &params;
  request.choice = *rc::gen::inRange(0u, 4u);
  request.prompt = prompt;
  request.output = output;
  request.banned = banned;
  SampleScratch scratch;
  for (uint32_t position = 0; position < 8; ++position) {
    std::vector<float> work = row;
    const SampleResult result = sample_row(work, request, position, scratch);
    RC_ASSERT(result.token == Twin::draw(row, request, position));
    std::vector<float> clean = row;
    clean_row(clean);
    RC_ASSERT(same_bits(work, clean));
    RC_ASSERT(std::all_of(scratch.counts.begin(), scratch.counts.end(),
                          [](uint32_t count) { return count == 0; }));
  }
}

// One setting at a time over a row where each matters, so that none hides behind another.
TEST(Sampler, each_setting_alone_draws_what_the_plain_twin_draws) {
  std::vector<float> row(60);
  for (size_t i = 0; i < row.size(); ++i) row[i] = 2.5f * std::sin(1.7f * static_cast<float>(i));
  const std::vector<TokenId> output = {3, 3, 3, 8, 20, 20};
  std::vector<SamplingParams> settings(9);
  settings[0].typical_p = 0.2f;
  settings[1].typical_p = 0.6f;
  settings[2].typical_p = 0.9f;
  settings[3].top_p = 0.7f;
  settings[4].min_p = 0.2f;
  settings[5].top_k = 5;
  settings[6].frequency_penalty = 0.8f;
  settings[7].presence_penalty = 1.5f;
  settings[8].repetition_penalty = 1.4f;
  SampleScratch scratch;
  for (size_t i = 0; i < settings.size(); ++i) {
    SampleRequest request;
    request.params = &settings[i];
    request.output = output;
    for (uint32_t position = 0; position < 200; ++position) {
      std::vector<float> work = row;
      EXPECT_EQ(sample_row(work, request, position, scratch).token,
                Twin::draw(row, request, position))
          << "setting " << i << " position " << position;
    }
  }
}

RC_GTEST_PROP(Sampler, logprobs_and_ranks_are_of_the_raw_row, ()) {
  const size_t size = *rc::gen::element<size_t>(1, 5, 200, 1000);
  std::vector<float> row = arbitrary_row(size);
  SampleRequest request;
  request.scored = static_cast<TokenId>(*rc::gen::inRange<size_t>(0, size));
  request.top_logprobs = *rc::gen::inRange(0u, 25u);
  SampleScratch scratch;
  const SampleResult result = sample_row(row, request, 0, scratch);
  RC_ASSERT(result.token == request.scored);

  const float max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - static_cast<double>(max));
  std::vector<Candidate> sorted;
  for (size_t i = 0; i < size; ++i) sorted.push_back({row[i], static_cast<TokenId>(i)});
  std::sort(sorted.begin(), sorted.end(), ranks_before);
  auto near = [&](float ours, float logit) {
    if (std::isinf(logit)) return ours == -kInfinity;
    const double exact = static_cast<double>(logit) - static_cast<double>(max) - std::log(sum);
    if (exact < -3.4e38) return ours <= -3.4e38f;  // past float's range
    return std::fabs(ours - exact) <= 1e-6 + 2e-7 * std::fabs(exact);
  };
  RC_ASSERT(sorted[result.rank].token == request.scored);
  RC_ASSERT(near(result.logprob, row[request.scored]));
  size_t finite = 0;
  for (const Candidate& c : sorted) finite += c.value > -kInfinity ? 1 : 0;
  RC_ASSERT(result.top.size() == std::min<size_t>(request.top_logprobs, finite));
  for (size_t i = 0; i < result.top.size(); ++i) {
    RC_ASSERT(result.top[i].token == sorted[i].token);
    RC_ASSERT(near(result.top[i].logprob, sorted[i].value));
  }
}

RC_GTEST_PROP(Sampler, top_selection_is_the_head_of_a_full_sort, ()) {
  const size_t size = *rc::gen::element<size_t>(0, 1, 63, 64, 65, 5000, 20000);
  const int spread = *rc::gen::element(1, 50, 1000000);
  const uint32_t seed = *rc::gen::arbitrary<uint32_t>();
  std::vector<float> row(size);
  std::vector<Candidate> sorted;
  for (size_t i = 0; i < size; ++i) {
    const double u = uniform_draw(seed, 0, static_cast<uint32_t>(i));
    row[i] = static_cast<float>(std::floor((u - 0.5) * spread));
    sorted.push_back({row[i], static_cast<TokenId>(i)});
  }
  std::sort(sorted.begin(), sorted.end(), ranks_before);
  const size_t count = *rc::gen::element<size_t>(0, 1, 20, 64, 4096, 4097, 30000);
  sorted.resize(std::min(count, size));
  std::vector<Candidate> out, spare;
  select_top(row, count, out, spare);
  RC_ASSERT(out == sorted);
}

TEST(Sampler, weight_agrees_with_exp) {
  for (int i = 0; i < 87000; ++i) {
    const float x = -static_cast<float>(i) * 0.001f;
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(softmax_weight(x, 0, 1) / exact, 1.0, 2e-7) << x;
  }
  EXPECT_EQ(softmax_weight(-kInfinity, 0, 1), 0.0f);
  EXPECT_EQ(softmax_weight(5, 5, 1e5f), 1.0f);
}

TEST(Sampler, every_cpu_level_gives_the_same_bits) {
  std::vector<float> row = {0, -kInfinity, -87, -87.00001f, -1e30f};
  for (uint32_t i = 0; row.size() < 301; ++i) {
    row.push_back(static_cast<float>(-40 * uniform_draw(3, 0, i)));
  }
  const auto variants = block_weights_variants();
  for (size_t count = 0; count <= row.size(); ++count) {
    std::vector<float> expected(row.size()), got(row.size());
    const double sum = variants[0](row.data(), count, 0, 0.7f, expected.data());
    for (const BlockWeights variant : variants) {
      EXPECT_EQ(variant(row.data(), count, 0, 0.7f, got.data()), sum);
      EXPECT_EQ(variant(row.data(), count, 0, 0.7f, nullptr), sum);
      EXPECT_TRUE(same_bits(got, expected));
    }
  }
}

TEST(Sampler, philox_gives_its_published_values) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Pearson's chi-square of draws at many positions against the exact distribution. Fixed seeds; the
// bound is far out (p about 1e-5), the mistake below it is not.
double chi_square(const SamplingParams& params, const std::vector<float>& row,
                  const std::vector<double>& expected, uint32_t choice) {
  constexpr uint32_t kDraws = 40000;
  std::vector<double> hits(row.size());
  SampleScratch scratch;
  std::vector<float> work = row;
  SampleRequest request;
  request.params = &params;
  request.choice = choice;
  for (uint32_t position = 0; position < kDraws; ++position) {
    ++hits[sample_row(work, request, position, scratch).token];
  }
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double mean = expected[i] * kDraws;
    if (mean == 0) {
      EXPECT_EQ(hits[i], 0) << i;
    } else {
      sum += (hits[i] - mean) * (hits[i] - mean) / mean;
    }
  }
  return sum;
}

TEST(Sampler, draws_follow_the_distribution) {
  std::vector<float> row;
  for (int i = 0; i < 20; ++i) row.push_back(static_cast<float>((i * 7) % 20) * 0.15f);
  for (const float temperature : {0.5f, 1.0f, 1.7f}) {
    for (const int32_t top_k : {0, 10}) {
      std::vector<double> expected(20);
      double sum = 0;
      for (int i = 0; i < 20; ++i) {
        if (top_k == 0 || (i * 7) % 20 >= 10) sum += expected[i] = std::exp(row[i] / temperature);
      }
      for (double& e : expected) e /= sum;
      for (uint32_t choice = 0; choice < 3; ++choice) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_k = top_k;
        params.seed = 0x1234567890abcdefu + choice;
        EXPECT_LT(chi_square(params, row, expected, choice), 55.0)  // 19 degrees of freedom
            << temperature << " " << top_k << " " << choice;
      }
    }
  }
}

TEST(Sampler, draw_depends_on_seed_choice_and_position) {
  std::set<double> draws;
  for (const uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (uint32_t choice = 0; choice < 5; ++choice) {
      for (uint32_t position = 0; position < 50; ++position) {
        const double draw = uniform_draw(seed, choice, position);
        EXPECT_GE(draw, 0.0);
        EXPECT_LT(draw, 1.0);
        draws.insert(draw);
      }
    }
  }
  EXPECT_EQ(draws.size(), 4u * 5 * 50);
}

TEST(Sampler, two_choices_of_one_row_see_the_same_logits) {
  std::vector<float> row(100, 0.0f);
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{42, 5.0f}};
  SampleRequest request;
  request.params = &params;
  request.want_logprob = true;
  SampleScratch scratch;
  const SampleResult first = sample_row(row, request, 3, scratch);
  const SampleResult second = sample_row(row, request, 3, scratch);
  EXPECT_EQ(first.token, 42);
  EXPECT_EQ(second.token, 42);
  EXPECT_FLOAT_EQ(first.logprob, -std::log(100.0f));
  EXPECT_EQ(first.rank, 42u);
}

TEST(Sampler, ids_outside_the_row_are_ignored) {
  std::vector<float> row = {1, 2, 3};
  SamplingParams params;
  params.repetition_penalty = 2;
  params.logit_bias = {{-1, 100.0f}, {3, 100.0f}, {1 << 30, 100.0f}};
  const std::vector<TokenId> ids = {-1, 3, 1 << 30};
  SampleRequest request;
  request.params = &params;
  request.prompt = request.output = request.banned = ids;
  SampleScratch scratch;
  const TokenId token = sample_row(row, request, 0, scratch).token;
  EXPECT_GE(token, 0);
  EXPECT_LT(token, 3);
}

TEST(Sampler, greedy_takes_the_first_of_equals_however_far_apart) {
  std::vector<float> row(5000, 1.0f);
  row[700] = row[900] = row[2500] = row[4999] = 7.0f;
  SamplingParams params;
  params.temperature = 0;
  SampleRequest request;
  request.params = &params;
  SampleScratch scratch;
  EXPECT_EQ(sample_row(row, request, 0, scratch).token, 700);
}

TEST(Sampler, top_p_stops_once_the_share_is_reached) {
  std::vector<float> row = {1, 1, 1, 1};
  SamplingParams params;
  params.top_p = 0.5f;
  SampleRequest request;
  request.params = &params;
  SampleScratch scratch;
  std::set<TokenId> drawn;
  for (uint32_t i = 0; i < 100; ++i) drawn.insert(sample_row(row, request, i, scratch).token);
  EXPECT_EQ(drawn, (std::set<TokenId>{0, 1}));
}

// Nearly equal weights: none may be taken for too light to matter.
TEST(Sampler, top_p_of_a_flat_row_keeps_its_share) {
  std::vector<float> row(1000);
  for (size_t i = 0; i < row.size(); ++i) row[i] = -1e-4f * static_cast<float>(i);
  SamplingParams params;
  params.top_p = 0.6f;
  SampleRequest request;
  request.params = &params;
  SampleScratch scratch;
  sample_row(row, request, 0, scratch);
  EXPECT_NEAR(static_cast<double>(scratch.candidates.size()), 580, 15);
}

// Whoever has the greatest logit alone must know when that is all that is asked for.
TEST(Sampler, only_a_plain_greedy_draw_is_the_greatest_alone) {
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.top_k = 3;  // changes nothing
  SampleRequest request;
  request.params = &greedy;
  EXPECT_TRUE(is_greatest_alone(request));
  const std::vector<TokenId> tokens = {1};
  const auto with = [&](auto change) {
    SamplingParams params = greedy;
    SampleRequest changed = request;
    changed.params = &params;
    change(changed, params);
    return is_greatest_alone(changed);
  };
  EXPECT_FALSE(with([](SampleRequest& r, SamplingParams&) { r.params = nullptr; }));
  EXPECT_FALSE(with([](SampleRequest& r, SamplingParams&) { r.want_logprob = true; }));
  EXPECT_FALSE(with([](SampleRequest& r, SamplingParams&) { r.top_logprobs = 1; }));
  EXPECT_FALSE(with([&](SampleRequest& r, SamplingParams&) { r.banned = tokens; }));
  EXPECT_FALSE(with([](SampleRequest&, SamplingParams& p) { p.temperature = 0.5f; }));
  EXPECT_FALSE(with([](SampleRequest&, SamplingParams& p) { p.logit_bias = {{1, 1.0f}}; }));
  EXPECT_FALSE(with([](SampleRequest&, SamplingParams& p) { p.repetition_penalty = 1.1f; }));
  EXPECT_FALSE(with([](SampleRequest&, SamplingParams& p) { p.frequency_penalty = 0.1f; }));
  EXPECT_FALSE(with([](SampleRequest&, SamplingParams& p) { p.presence_penalty = -0.1f; }));
  EXPECT_TRUE(with([&](SampleRequest& r, SamplingParams&) { r.prompt = r.output = tokens; }));
}

TEST(Sampler, all_banned_still_gives_a_token) {
  std::vector<float> row = {kNan, -kInfinity, 5};
  SamplingParams params;
  const std::vector<TokenId> banned = {0, 2};
  SampleRequest request;
  request.params = &params;
  request.banned = banned;
  SampleScratch scratch;
  EXPECT_EQ(sample_row(row, request, 0, scratch).token, 1);
}

}  // namespace
}  // namespace spillway::model
