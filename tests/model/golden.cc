#include "tests/model/golden.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/tensors.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr size_t kTop = 3;
constexpr float kCertain = 0.5f;  // natural log-probability lead that rounding does not turn

template <class T>
std::vector<T> integers(const GgufFile& file, const std::string& key) {
  const auto numbers = file.get_ints(key).value();
  return {numbers.begin(), numbers.end()};
}

std::vector<GoldenRow> read_rows(const GgufFile& file, const std::string& name) {
  std::vector<GoldenRow> rows;
  const GgufTensor* values = file.tensor(name + "row_logprobs");
  if (values == nullptr) return rows;
  const std::vector<float> all = tensor_floats(*values);
  const auto tokens = integers<TokenId>(file, name + "row_tokens");
  ptrdiff_t at = 0;
  for (auto count : integers<ptrdiff_t>(file, name + "row_counts")) {
    rows.push_back({{tokens.begin() + at, tokens.begin() + at + count},
                    {all.begin() + at, all.begin() + at + count}});
    at += count;
  }
  return rows;
}

// KL(reference || ours), with all outcomes below the reference's cut as one.
double row_kl(const GoldenRow& reference, const std::vector<float>& ours) {
  double kl = 0, rest_reference = 1, rest_ours = 1;
  for (size_t i = 0; i < reference.tokens.size(); ++i) {
    const double p = reference.log_probabilities[i];
    const double q = ours[static_cast<size_t>(reference.tokens[i])];
    kl += std::exp(p) * (p - q);
    rest_reference -= std::exp(p);
    rest_ours -= std::exp(q);
  }
  if (rest_reference <= 0) return kl;  // the f16 values sum to a little more than 1
  return kl + rest_reference * std::log(rest_reference / std::max(rest_ours, 1e-12));
}

void compare_row(const GoldenRow& reference, const std::vector<float>& ours,
                 GoldenFigures& figures) {
  figures.kl.push_back(row_kl(reference, ours));
  std::vector<float> sorted = reference.log_probabilities;
  std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
  if (sorted[0] - sorted[1] < kCertain) return;
  ++figures.top1_rows;
  const auto best = std::max_element(ours.begin(), ours.end()) - ours.begin();
  const size_t expected = static_cast<size_t>(
      std::max_element(reference.log_probabilities.begin(), reference.log_probabilities.end()) -
      reference.log_probabilities.begin());
  if (best != reference.tokens[expected]) ++figures.top1_wrong;
}

SampleRequest score(uint32_t row, TokenId token) {
  SampleRequest request;
  request.row = row;
  request.scored = token;
  request.want_logprob = true;
  return request;
}

// What is asked of the rows [first, first + count) of a case, in the order in which take() reads.
std::vector<SampleRequest> ask(const RunnerHarness& harness, const GoldenCase& golden,
                               uint32_t first, uint32_t count) {
  std::vector<SampleRequest> samples;
  for (uint32_t row = first; row < first + count; ++row) {
    if (row < golden.rows.size()) samples.push_back(harness.whole_row(row - first));
    const auto at = std::find(golden.positions.begin(), golden.positions.end(), row);
    const auto index = static_cast<size_t>(at - golden.positions.begin());
    for (size_t k = 0; at != golden.positions.end() && k < kTop; ++k) {
      samples.push_back(score(row - first, golden.top_tokens[index * kTop + k]));
    }
    if (row + 1 < golden.tokens.size()) {
      samples.push_back(score(row - first, golden.tokens[row + 1]));
    }
  }
  return samples;
}

void take(const RunnerHarness& harness, const GoldenCase& golden, uint32_t first, uint32_t count,
          const std::vector<SampleResult>& results, GoldenFigures& figures, double& nll) {
  auto next = results.begin();
  for (uint32_t row = first; row < first + count; ++row) {
    if (row < golden.rows.size()) {
      compare_row(golden.rows[row], harness.row_of(*next++), figures);
    }
    const auto at = std::find(golden.positions.begin(), golden.positions.end(), row);
    const auto index = static_cast<size_t>(at - golden.positions.begin());
    for (size_t k = 0; at != golden.positions.end() && k < kTop; ++k) {
      const double expected = golden.top_log_probabilities[index * kTop + k];
      figures.top3.push_back(std::abs((next++)->logprob - expected));
    }
    if (row + 1 < golden.tokens.size()) nll -= (next++)->logprob;
  }
  CHECK(next == results.end());
}

// True if the continuation agrees up to the first step that the reference is not certain of.
bool greedy_agrees(RunnerHarness& harness, HarnessSequence& sequence, const GoldenCase& golden,
                   TokenId first) {
  SamplingParams params;
  params.temperature = 0;
  SampleRequest draw;
  draw.params = &params;
  TokenId token = first;
  for (size_t i = 0; i < golden.greedy.size() && golden.greedy_margin[i] >= kCertain; ++i) {
    if (token != golden.greedy[i]) return false;
    token = harness.step({{&sequence, std::span(&token, 1), {draw}}}).samples[0][0].token;
  }
  return true;
}

void measure_case(RunnerHarness& harness, const GoldenCase& golden, uint32_t chunk,
                  GoldenFigures& figures) {
  HarnessSequence sequence = harness.new_sequence();
  const auto total = static_cast<uint32_t>(golden.tokens.size());
  SamplingParams params;
  params.temperature = 0;
  double nll = 0;
  TokenId drawn = -1;
  for (uint32_t at = 0; at < total; at += chunk) {
    const uint32_t count = std::min(chunk, total - at);
    std::vector<SampleRequest> samples = ask(harness, golden, at, count);
    SampleRequest& draw = samples.emplace_back();
    draw.row = count - 1;
    draw.params = &params;
    StepResult result =
        harness.step({{&sequence, std::span(golden.tokens).subspan(at, count), samples}});
    drawn = result.samples[0].back().token;
    result.samples[0].pop_back();
    take(harness, golden, at, count, result.samples[0], figures, nll);
  }
  if (total > 1) {
    figures.nll_worst = std::max(figures.nll_worst, std::abs(nll / (total - 1) - golden.mean_nll));
  }
  if (!greedy_agrees(harness, sequence, golden, drawn)) figures.greedy_wrong += golden.name + " ";
  harness.release(sequence);
}

}  // namespace

double GoldenFigures::kl_mean() const {
  return std::accumulate(kl.begin(), kl.end(), 0.0) / static_cast<double>(kl.size());
}
double GoldenFigures::top3_mean() const {
  return std::accumulate(top3.begin(), top3.end(), 0.0) / static_cast<double>(top3.size());
}
double GoldenFigures::top3_worst() const { return *std::max_element(top3.begin(), top3.end()); }

std::vector<GoldenCase> read_golden(const std::string& path) {
  const GgufFile file = GgufFile::open(path).value();
  std::vector<GoldenCase> cases;
  for (std::string_view name : file.get_strings("cases").value()) {
    const std::string key = std::string(name) + ".";
    cases.push_back({.name = std::string(name),
                     .tokens = integers<TokenId>(file, key + "tokens"),
                     .positions = integers<uint32_t>(file, key + "positions"),
                     .top_tokens = integers<TokenId>(file, key + "top_tokens"),
                     .top_log_probabilities = file.get_floats(key + "top_logprobs").value(),
                     .mean_nll = file.get_f32(key + "mean_nll").value(),
                     .greedy = integers<TokenId>(file, key + "greedy"),
                     .greedy_margin = file.get_floats(key + "greedy_margin").value(),
                     .rows = read_rows(file, key)});
  }
  return cases;
}

GoldenFigures measure_golden(RunnerHarness& harness, const std::vector<GoldenCase>& cases,
                             size_t tokens_max, uint32_t chunk) {
  GoldenFigures figures;
  for (const GoldenCase& golden : cases) {
    if (golden.tokens.size() <= tokens_max) measure_case(harness, golden, chunk, figures);
  }
  return figures;
}

}  // namespace spillway::model
