// Drawing on a GPU: the tokens, log-probabilities and ranks of the CPU's sampler.
#include "model/device_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "model/draw.h"
#include "model/sampler.h"
#include "model/softmax.h"
#include "runtime/prng.h"
#include "tests/kernels/cuda/gpu_under_test.h"
#include "tests/kernels/cuda/parts_under_test.h"

namespace spillway::model {
namespace {

using kernels::cuda::DeviceDraw;
using kernels::cuda::DeviceReport;
using kernels::cuda::GpuUnderTest;
using kernels::cuda::SampleArgs;

// AddressSanitizer follows each switch of a fiber, which takes ten times as long: fewer rows.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPILLWAY_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SPILLWAY_ASAN 1
#endif
#ifdef SPILLWAY_ASAN
constexpr uint32_t kShare = 8;
#else
constexpr uint32_t kShare = 1;
#endif

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

float pick(Prng& rng, std::initializer_list<float> from) {
  return from.begin()[rng.below(from.size())];
}

float normal(Prng& rng) {
  const double radius = std::sqrt(-2 * std::log(rng.uniform() + 1e-300));
  return static_cast<float>(radius * std::cos(6.283185307179586 * rng.uniform()));
}

enum class RowKind : uint64_t {
  kModel,
  kTies,
  kFlat,
  kHostile,
  kNothing,
  kAlone,
  kNearlyFlat,
  kZeros,
  kCount
};

float arbitrary_logit(Prng& rng, RowKind kind, size_t i) {
  switch (kind) {
    case RowKind::kTies:
      return 0.25f * static_cast<float>(rng.below(17));
    case RowKind::kFlat:
      return 1.5f;
    case RowKind::kHostile:
      return rng.below(4) != 0 ? 4 * normal(rng)
                               : pick(rng, {kNan, kInfinity, -kInfinity, kLargest, -kLargest});
    case RowKind::kNothing:
      return pick(rng, {kNan, -kInfinity});
    case RowKind::kAlone:
      return -300 - static_cast<float>(rng.below(3));
    case RowKind::kNearlyFlat:
      return -1e-4f * static_cast<float>(i);
    case RowKind::kZeros:
      return pick(rng, {-0.0f, 0.0f, -1.0f});
    default:
      return 3 * normal(rng);
  }
}

// Rows of logits with what is wanted of each; between them NaN that nobody may read.
struct Batch {
  Batch(uint64_t seed, uint32_t rows, uint32_t n_in) : n(n_in), stride(n_in + 3) {
    Prng rng(seed, n);
    logits.assign((rows - 1) * stride + n, kNan);
    params.resize(rows);
    requests.resize(rows);
    for (uint32_t row = 0; row < rows; ++row) {
      const auto kind = static_cast<RowKind>(rng.below(static_cast<uint64_t>(RowKind::kCount)));
      for (size_t i = 0; i < n; ++i) logits[row * stride + i] = arbitrary_logit(rng, kind, i);
      if (kind == RowKind::kAlone) logits[row * stride + rng.below(n)] = pick(rng, {-0.0f, 7});
      set(rng, row);
    }
  }

  void set(Prng& rng, uint32_t row) {
    SamplingParams& p = params[row];
    p.temperature = pick(rng, {0, 1e-6f, 1e-5f, 0.3f, 0.7f, 1, 1, 2, 100, kInfinity});
    p.top_k = static_cast<int32_t>(pick(rng, {0, 0, 0, -1, 1, 2, 5, 40, 100, 257, 100000}));
    if (rng.below(8) == 0) p.top_k = static_cast<int32_t>(n) - static_cast<int32_t>(rng.below(2));
    p.top_p = pick(rng, {1, 1, 1, 0, -1, 1e-6f, 0.1f, 0.5f, 0.9f, 0.999f, -kInfinity});
    p.min_p = pick(rng, {0, 0, 0, -1, 1e-6f, 0.05f, 0.5f, 1, 2});
    p.seed = rng.next();
    SampleRequest& request = requests[row];
    request.choice = static_cast<uint32_t>(rng.below(4));
    request.want_logprob = rng.below(2) == 0;
    request.params = &p;
    if (rng.below(10) == 0) {
      request.params = nullptr;
      request.scored = static_cast<TokenId>(rng.below(n));
    }
  }

  uint32_t n;
  size_t stride;
  std::vector<float> logits;
  std::vector<SamplingParams> params;
  std::vector<SampleRequest> requests;
};

struct Drawn {
  std::vector<TokenId> tokens;
  std::vector<DeviceReport> reports;
};

Drawn draw_on_device(GpuUnderTest& gpu, const Batch& batch, uint32_t position) {
  const size_t rows = batch.requests.size();
  std::vector<DeviceDraw> draws;
  for (size_t i = 0; i < rows; ++i) {
    draws.push_back(device_draw(batch.requests[i], position + static_cast<uint32_t>(i)));
  }
  Drawn drawn{std::vector<TokenId>(rows, -7), std::vector<DeviceReport>(rows)};
  const size_t bytes = kernels::cuda::sample_scratch_bytes(static_cast<uint32_t>(rows), batch.n);
  std::vector<uint64_t> scratch(bytes / sizeof(uint64_t), ~uint64_t{0});  // NaN
  const std::vector<float> before = batch.logits;
  gpu.run(kernels::cuda::sample,
          SampleArgs{.logits = batch.logits.data(),
                     .stride = batch.stride,
                     .rows = static_cast<uint32_t>(rows),
                     .n = batch.n,
                     .draws = draws.data(),
                     .tokens = drawn.tokens.data(),
                     .reports = drawn.reports.data(),
                     .scratch = reinterpret_cast<std::byte*>(scratch.data())});
  return drawn;
}

std::string text_of(const SamplingParams& p) {
  return "temperature " + std::to_string(p.temperature) + ", top_k " + std::to_string(p.top_k) +
         ", top_p " + std::to_string(p.top_p) + ", min_p " + std::to_string(p.min_p);
}

void expect_as_on_cpu(GpuUnderTest& gpu, const Batch& batch, uint32_t position) {
  const Drawn drawn = draw_on_device(gpu, batch, position);
  SampleScratch scratch;
  for (size_t row = 0; row < batch.requests.size(); ++row) {
    const SampleRequest& request = batch.requests[row];
    SCOPED_TRACE(testing::Message() << gpu.text() << "row " << row << " of " << batch.n << ": "
                                    << text_of(batch.params[row]));
    const float* const from = batch.logits.data() + row * batch.stride;
    std::vector<float> work(from, from + batch.n);
    const SampleResult expected =
        sample_row(work, request, position + static_cast<uint32_t>(row), scratch);
    const SampleResult got = device_result(request, drawn.tokens[row], drawn.reports[row]);
    ASSERT_EQ(got.token, expected.token);
    ASSERT_EQ(got.rank, expected.rank);
    ASSERT_EQ(std::bit_cast<uint32_t>(got.logprob), std::bit_cast<uint32_t>(expected.logprob))
        << got.logprob << " and " << expected.logprob;
  }
}

TEST(DeviceSamplingTest, small_rows_are_drawn_as_on_the_cpu) {
  GpuUnderTest gpu;
  for (const uint32_t n : {1u, 2u, 31u, 32u, 33u, 255u, 256u, 257u, 600u}) {
    expect_as_on_cpu(gpu, Batch(gpu.seed(), 100 / kShare, n), 0xfffffff0u);
  }
}

TEST(DeviceSamplingTest, rows_past_what_shared_memory_sorts_are_drawn_as_on_the_cpu) {
  GpuUnderTest gpu;
  for (const uint32_t n : {2047u, 2048u, 2049u, 5000u}) {
    expect_as_on_cpu(gpu, Batch(gpu.seed(), 32 / kShare, n), 0);
  }
}

TEST(DeviceSamplingTest, vocabularies_of_models_are_drawn_as_on_the_cpu) {
  GpuUnderTest gpu;
  expect_as_on_cpu(gpu, Batch(gpu.seed(), 16 / kShare, 49152), 77);
  expect_as_on_cpu(gpu, Batch(gpu.seed(), kShare == 1 ? 3 : 1, 262144), 78);
}

TEST(DeviceSamplingTest, weights_have_the_cpus_bits) {
  std::vector<float> logits(200000 / kShare), weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = -4.5e-4f * static_cast<float>(kShare * i);
  }
  GpuUnderTest gpu;
  gpu.run(kernels::cuda::weigh, {.logits = logits.data(),
                                 .count = static_cast<uint32_t>(logits.size()),
                                 .to = weights.data()});
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_EQ(weights[i], softmax_weight(logits[i], 0, 1)) << logits[i];
  }
}

// A token seldom hangs on the last bits of a sum: so they are compared here.
TEST(DeviceSamplingTest, sums_of_blocks_have_the_cpus_bits) {
  GpuUnderTest gpu;
  const auto cpu_sum = block_weights_variants().front();
  for (const uint32_t n : {1u, 7u, 8u, 9u, 255u, 256u, 257u, 40001u}) {
    Prng rng(gpu.seed(), n);
    std::vector<float> logits(n);
    for (float& x : logits) x = 12 * normal(rng);  // so wide that sums round
    const std::vector<DeviceDraw> draws = {{.inverse_temperature = 1 / 0.7f, .reports = true}};
    std::vector<uint64_t> scratch(kernels::cuda::sample_row_scratch_bytes(n) / sizeof(uint64_t));
    std::vector<TokenId> token(1, -1);
    std::vector<DeviceReport> report(1);
    const SampleArgs args{.logits = logits.data(),
                          .stride = n,
                          .rows = 1,
                          .n = n,
                          .draws = draws.data(),
                          .tokens = token.data(),
                          .reports = report.data(),
                          .scratch = reinterpret_cast<std::byte*>(scratch.data())};
    gpu.run(kernels::cuda::sample, args);
    const uint32_t blocks = kernels::cuda::weight_blocks(n);
    std::vector<double> block_sums(blocks), raw_block_sums(blocks);
    gpu.run(kernels::cuda::take_block_sums,
            {.sample = args, .sums = block_sums.data(), .raw_sums = raw_block_sums.data()});
    const float max = row_max(logits);
    double total = 0;
    for (uint32_t block = 0; block < blocks; ++block) {
      const float* const from = logits.data() + block * kSumBlock;
      const size_t count = std::min<size_t>(kSumBlock, n - block * kSumBlock);
      EXPECT_EQ(block_sums[block],
                cpu_sum(from, count, max, draws[0].inverse_temperature, nullptr));
      EXPECT_EQ(raw_block_sums[block], cpu_sum(from, count, max, 1, nullptr));
      total += raw_block_sums[block];
    }
    EXPECT_EQ(report[0].weight_sum, total) << gpu.text();
  }
}

// What a model's row under a usual setting takes, each setting alone, at many positions.
TEST(DeviceSamplingTest, each_setting_alone_is_drawn_as_on_the_cpu) {
  GpuUnderTest gpu;
  Batch batch(gpu.seed(), 100 / kShare, 1000);
  Prng rng(gpu.seed(), 1);
  for (size_t row = 0; row < batch.params.size(); ++row) {
    SamplingParams& p = batch.params[row] = SamplingParams{};
    p.seed = 5;
    if (row % 5 == 1) p.top_k = 40;
    if (row % 5 == 2) p.top_p = 0.9f;
    if (row % 5 == 3) p.min_p = 0.05f;
    if (row % 5 == 4) p.top_k = 100, p.top_p = 0.95f;
    batch.requests[row].params = &p;
    for (size_t i = 0; i < batch.n; ++i) batch.logits[row * batch.stride + i] = 3 * normal(rng);
  }
  expect_as_on_cpu(gpu, batch, 1000);
}

TEST(DeviceSamplingTest, rows_of_none_draw_nothing) {
  GpuUnderTest gpu;
  gpu.run(kernels::cuda::sample, SampleArgs{.rows = 0, .n = 5});
}

TEST(DeviceSamplingTest, the_random_number_is_the_cpus) {
  GpuUnderTest gpu;
  Prng rng(gpu.seed());
  std::vector<DeviceDraw> draws(1024);
  for (DeviceDraw& draw : draws) {
    draw.seed = rng.next();
    draw.choice = static_cast<uint32_t>(rng.next());
    draw.position = static_cast<uint32_t>(rng.next());
  }
  std::vector<double> got(draws.size());
  gpu.run(kernels::cuda::draw_uniform,
          {.draws = draws.data(), .count = static_cast<uint32_t>(draws.size()), .to = got.data()});
  for (size_t i = 0; i < draws.size(); ++i) {
    EXPECT_EQ(got[i], uniform_draw(draws[i].seed, draws[i].choice, draws[i].position));
  }
}

TEST(DeviceSamplingTest, what_a_gpu_does_not_do_is_marked) {
  const std::vector<TokenId> banned = {3};
  SamplingParams plain;
  plain.temperature = 0.5f, plain.top_k = 3, plain.top_p = 0.5f, plain.min_p = 0.1f;
  SampleRequest request;
  request.params = &plain;
  request.want_logprob = true;
  EXPECT_TRUE(sampled_on_device(request));
  request.banned = banned;
  EXPECT_FALSE(sampled_on_device(request));
  request.banned = {};
  request.top_logprobs = 1;
  EXPECT_FALSE(sampled_on_device(request));
  request.top_logprobs = 0;
  using Edit = void (*)(SamplingParams&);
  for (const Edit edit : {Edit{[](SamplingParams& p) { p.typical_p = 0.9f; }},
                          Edit{[](SamplingParams& p) { p.repetition_penalty = 1.1f; }},
                          Edit{[](SamplingParams& p) { p.frequency_penalty = 0.1f; }},
                          Edit{[](SamplingParams& p) { p.presence_penalty = -0.1f; }},
                          Edit{[](SamplingParams& p) { p.logit_bias = {{1, 1.0f}}; }},
                          Edit{[](SamplingParams& p) { p.temperature = kNan; }},
                          Edit{[](SamplingParams& p) { p.top_p = kNan; }},
                          Edit{[](SamplingParams& p) { p.min_p = kNan; }}}) {
    SamplingParams edited = plain;
    edit(edited);
    request.params = &edited;
    EXPECT_FALSE(sampled_on_device(request));
  }
  request.params = nullptr;
  EXPECT_FALSE(sampled_on_device(request));
  request.scored = 0;
  EXPECT_TRUE(sampled_on_device(request));
}

}  // namespace
}  // namespace spillway::model
