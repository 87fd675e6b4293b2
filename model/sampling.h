// How a token is drawn from a row of logits: the client's parameters, and what a step reports.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/token.h"

namespace spillway::model {

// All-default values mean: softmax sampling at temperature 1, no filter, no penalty.
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy; ties go to the lowest token id
  int32_t top_k = 0;         // <= 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;  // over prompt and output, > 1 discourages
  float frequency_penalty = 0.0f;   // over output
  float presence_penalty = 0.0f;    // over output
  uint64_t seed = 0;                // the draw depends on (seed, choice index, position) alone
  std::vector<std::pair<TokenId, float>> logit_bias;
};

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;  // natural log of the softmax of the raw logits (before any filter)
};

// What is wanted of one row of logits.
struct SampleRequest {
  uint32_t row = 0;                        // index in its SequenceStep::tokens
  const SamplingParams* params = nullptr;  // null: draw nothing, only score
  uint32_t choice = 0;
  std::span<const TokenId> prompt;  // for penalties
  std::span<const TokenId> output;  // for penalties; tokens drawn so far
  std::span<const TokenId> banned;  // never drawn (min_tokens, ignore_eos)
  TokenId scored = -1;              // report this token's log-probability (prompt logprobs)
  bool want_logprob = false;
  uint32_t top_logprobs = 0;  // report this many of the most likely
};

struct SampleResult {
  TokenId token = -1;             // drawn, or `scored`
  float logprob = 0.0f;           // of `token`, if wanted
  uint32_t rank = 0;              // of `token` among all, from 0, if wanted
  std::vector<TokenLogprob> top;  // most likely first; ties by token id
};

}  // namespace spillway::model
