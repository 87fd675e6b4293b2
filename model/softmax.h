// Sums of exponentials over a row of logits, in one fixed order: the same bits on every machine
// and for every caller. Rows hold no NaN and no +infinity (see clean_row).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace spillway::model {

// Replaces NaN by -infinity and +infinity by the largest float; returns the greatest value
// (-infinity if there is none).
float clean_row(std::span<float> row);

float row_max(std::span<const float> row);

// The lowest index that holds the greatest value; 0 for a row of -infinity. REQUIRES: not empty.
size_t row_argmax(std::span<const float> row);

// exp((logit - max) / temperature) for logit <= max: relative error under 2e-7; below e^-87 it is
// exactly 0. Written without library calls, so that it rounds alike everywhere.
float softmax_weight(float logit, float max, float inverse_temperature);

inline constexpr size_t kSumBlock = 256;

// Sum of the weights of `count` logits; stores them to `out` where it is not null.
using BlockWeights = double (*)(const float* logits, size_t count, float max,
                                float inverse_temperature, float* out);
// Those that this machine runs, the quickest last. All give the same bits.
std::vector<BlockWeights> block_weights_variants();

// Fills `weights` with softmax_weight of each logit, and `block_sums` with the sum of each
// kSumBlock of them; returns the total. 262,144 logits: 1 MiB read and written, about 0.3 ms.
double softmax_weights(std::span<const float> logits, float max, float inverse_temperature,
                       std::vector<float>& weights, std::vector<double>& block_sums);

// Natural log of the sum of e^(logit - max): what (logit - max) exceeds its log-probability by. The
// two are kept apart so that huge logits lose no digits.
double log_weight_sum(std::span<const float> logits, float max);

// The log-probability of a token of a row; of one of -infinity that.
float token_logprob(float logit, float max, double log_sum);

}  // namespace spillway::model
