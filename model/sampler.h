// One token from one row of logits, by the client's parameters.
//
// The order of operations is vLLM's: logit_bias and banned tokens, penalties (repetition, then
// frequency and presence), temperature, min-p, top-k, typical, top-p. A filter after another works
// on what is left, its probabilities taken anew; each keeps at least one token. A temperature under
// 1e-5 is greedy. Sums run in double in one fixed order and ties go to the lower token id, so the
// same row gives the same token and the same log-probability bits everywhere.
//
// Log-probabilities and ranks are those of the raw row, before bias, penalties and filters.
//
// NaN counts as -infinity, +infinity as the largest float. A token of -infinity is never drawn,
// unless nothing else is left: then it is the lowest token id that is not banned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "model/sampling.h"
#include "model/top_select.h"

namespace spillway::model {

inline bool is_greedy(const SamplingParams& params) { return !(params.temperature >= 1e-5f); }

// Never 0: -infinity times it must stay -infinity.
inline float inverse_temperature(float temperature) {
  return std::max(1.0f / temperature, std::numeric_limits<float>::min());
}

// Memory reused from call to call: one per thread. Grows to about 30 bytes per vocabulary entry.
struct SampleScratch {
  std::vector<float> weights;
  std::vector<double> block_sums;
  std::vector<Candidate> candidates;
  std::vector<Candidate> spare;
  std::vector<Candidate> order;
  std::vector<uint32_t> counts;  // (vocabulary) all zero between calls
  std::vector<TokenId> seen;
  std::vector<std::pair<TokenId, float>> edits;  // raw logits under bias, bans and penalties
};

// `position` is the absolute position in the sequence that the drawn token will have. `logits` is
// written to while it works and is whole again on return, but for NaN and +infinity. Token ids
// outside the row in bias, bans and penalties are ignored. Does not suspend; any thread.
// REQUIRES: logits not empty; request.scored is -1 or in the row.
SampleResult sample_row(std::span<float> logits, const SampleRequest& request, uint32_t position,
                        SampleScratch& scratch);

// Whether sample_row() would give no more than the first of the raw row's greatest logits: greedy,
// with nothing that changes a logit, and no log-probabilities. (Of a row without a finite logit it
// gives another token than the greatest's.)
bool is_greatest_alone(const SampleRequest& request);

}  // namespace spillway::model
