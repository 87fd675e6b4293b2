// Measures a runner against the reference values of tests/data/golden (see its README).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/token.h"
#include "tests/model/runner_harness.h"

namespace spillway::model {

struct GoldenRow {  // log-probabilities above the cut
  std::vector<TokenId> tokens;
  std::vector<float> log_probabilities;
};

struct GoldenCase {
  std::string name;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> positions;
  std::vector<TokenId> top_tokens;  // (position, 3)
  std::vector<float> top_log_probabilities;
  float mean_nll = 0;
  std::vector<TokenId> greedy;
  std::vector<float> greedy_margin;
  std::vector<GoldenRow> rows;  // of the first positions
};
std::vector<GoldenCase> read_golden(const std::string& path);

struct GoldenFigures {
  std::vector<double> kl;  // of each whole row
  uint32_t top1_rows = 0;  // whole rows whose reference leads by 0.5 or more
  uint32_t top1_wrong = 0;
  std::vector<double> top3;  // absolute differences
  double nll_worst = 0;      // absolute difference of a case's mean
  std::string greedy_wrong;  // names of cases that left the continuation where it was certain

  double kl_mean() const;
  double top3_mean() const;
  double top3_worst() const;
};

// Runs the cases of at most `tokens_max` tokens, prompts in chunks of `chunk`.
GoldenFigures measure_golden(RunnerHarness& harness, const std::vector<GoldenCase>& cases,
                             size_t tokens_max, uint32_t chunk);

}  // namespace spillway::model
