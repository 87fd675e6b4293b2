// Traces of requests, as prefix blocks: read from a file, cut, or made up.
//
// A file has one JSON object a line with `timestamp` (ms), `input_length`, `output_length` (tokens)
// and `hash_ids`: a number for each 512 tokens of the prompt, equal where the prefix up to there
// is.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace spillway::replay {

inline constexpr uint32_t kBlockTokens = 512;

struct TracedRequest {
  uint32_t input_tokens = 0;
  std::vector<uint32_t> blocks;  // the last may be part of a block
};
using Trace = std::vector<TracedRequest>;

Result<Trace> read_trace(std::istream& in);  // an error names the line

// Other workloads of the same trace. `part` of `parts`, by time.
Trace time_slice(const Trace& trace, uint32_t part, uint32_t parts);
// About one in `every` of those who share no more than the first block with others.
Trace some_users(const Trace& trace, uint32_t every);
// Runs of `run` requests, in random order.
Trace shuffled_runs(const Trace& trace, uint32_t run, uint64_t seed);

// Made-up workloads. Questions over documents that are popular by a Zipf law with the exponent
// `skew`; with `drift_every`, popularity moves on by a twentieth of the documents so often.
struct DocumentsOptions {
  uint32_t requests = 8000, documents = 2000;
  double skew = 1;
  uint32_t drift_every = 0;
  uint64_t seed = 1;
};
Trace documents(const DocumentsOptions& options);

// Conversations that arrive at random and go on with probability `goes_on`, after a pause of about
// `pause` arrivals.
struct ConversationsOptions {
  uint32_t requests = 8000;
  double goes_on = 0.8, pause = 100;
  uint64_t seed = 1;
};
Trace conversations(const ConversationsOptions& options);

// Agents: a few dozen long prompts that all their calls share, tools that many do, and ends that
// are never seen again.
Trace agents(uint32_t requests, uint64_t seed);

// Every prompt is new.
Trace never_again(uint32_t requests, uint64_t seed);

}  // namespace spillway::replay
