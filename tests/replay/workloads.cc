#include <cmath>
#include <queue>

#include "runtime/prng.h"
#include "trace.h"

namespace spillway::replay {
namespace {

// Hands out blocks that nobody else has.
class Blocks {
 public:
  void extend(TracedRequest& request, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) request.blocks.push_back(next_++);
    request.input_tokens = static_cast<uint32_t>(request.blocks.size()) * kBlockTokens;
  }
  TracedRequest start(uint32_t count) {
    TracedRequest request;
    request.blocks.push_back(0);  // the system prompt, everybody's
    extend(request, count);
    return request;
  }

 private:
  uint32_t next_ = 1;
};

uint32_t between(Prng& random, uint32_t least, uint32_t most) {
  return least + static_cast<uint32_t>(random.below(most - least + 1));
}

double exponential(Prng& random) { return -std::log(1 - random.uniform()); }

// About exp(N(0, 1)): a sum of 12 uniforms is nearly normal.
double log_normal(Prng& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return std::exp(sum);
}

}  // namespace

Trace documents(const DocumentsOptions& options) {
  Prng random(options.seed);
  Blocks blocks;
  std::vector<TracedRequest> prefixes;
  for (uint32_t i = 0; i < options.documents; ++i) {
    prefixes.push_back(blocks.start(between(random, 4, 60)));
  }
  std::vector<double> up_to;  // cumulated weights by popularity
  double total = 0;
  for (uint32_t i = 0; i < options.documents; ++i) {
    up_to.push_back(total += std::pow(i + 1, -options.skew));
  }
  Trace trace;
  uint64_t moved = 0;
  for (uint32_t i = 0; i < options.requests; ++i) {
    if (options.drift_every > 0 && i % options.drift_every == 0) moved += options.documents / 20;
    const auto at = std::lower_bound(up_to.begin(), up_to.end(), random.uniform() * total);
    const uint64_t popularity = static_cast<uint64_t>(at - up_to.begin());
    // 7919 is prime: neighbours in popularity are no neighbours in number.
    trace.push_back(prefixes[(popularity * 7919 + moved) % options.documents]);
    blocks.extend(trace.back(), between(random, 1, 4));
  }
  return trace;
}

Trace conversations(const ConversationsOptions& options) {
  struct Turn {
    double at;
    uint64_t number;  // of equal times, the first made goes first
    TracedRequest request;
    bool operator<(const Turn& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  Prng random(options.seed);
  Blocks blocks;
  std::priority_queue<Turn> turns;
  Trace trace;
  double next_arrival = 0;
  uint64_t number = 0;
  while (trace.size() < options.requests) {
    Turn turn;
    if (turns.empty() || next_arrival <= turns.top().at) {
      turn = {next_arrival, 0, blocks.start(between(random, 1, 20))};
      next_arrival += exponential(random);
    } else {
      turn = turns.top();
      turns.pop();
    }
    trace.push_back(turn.request);
    if (random.uniform() >= options.goes_on) continue;
    turn.request.blocks.pop_back();  // it was not full: the answer goes on in it
    blocks.extend(turn.request, between(random, 2, 5));
    turn.at += log_normal(random) * options.pause;
    turn.number = ++number;
    turns.push(std::move(turn));
  }
  return trace;
}

Trace agents(uint32_t requests, uint64_t seed) {
  constexpr uint32_t kAgents = 40, kTools = 10;
  Prng random(seed);
  Blocks blocks;
  std::vector<TracedRequest> calls;  // [agent * kTools + tool]
  for (uint32_t agent = 0; agent < kAgents; ++agent) {
    const TracedRequest prompt = blocks.start(6 + agent % 7);
    for (uint32_t tool = 0; tool < kTools; ++tool) {
      calls.push_back(prompt);
      blocks.extend(calls.back(), 3);
    }
  }
  Trace trace;
  for (uint32_t i = 0; i < requests; ++i) {
    const double pareto = std::pow(1 - random.uniform(), -1 / 0.7);
    const uint32_t agent = static_cast<uint32_t>(std::min(pareto, kAgents * 1.0)) - 1;
    trace.push_back(calls[agent * kTools + random.below(kTools)]);
    blocks.extend(trace.back(), between(random, 1, 14));
  }
  return trace;
}

Trace never_again(uint32_t requests, uint64_t seed) {
  Prng random(seed);
  Blocks blocks;
  Trace trace;
  for (uint32_t i = 0; i < requests; ++i) trace.push_back(blocks.start(between(random, 1, 40)));
  return trace;
}

}  // namespace spillway::replay
