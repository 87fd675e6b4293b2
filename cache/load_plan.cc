#include "cache/load_plan.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::cache {

uint32_t meeting_point(const LoadQuestion& question, const ComputeRate& compute) {
  CHECK(question.begin <= question.end);
  double computed_s = compute.step_seconds() * question.compute_price;
  const auto loaded_s = [&](uint32_t from) {
    return from == question.end
               ? 0.0
               : question.queued_seconds + (question.end - from) * question.load_seconds;
  };
  uint32_t best = question.begin;
  double best_s = loaded_s(question.begin);
  for (uint32_t m = question.begin; m < question.end; ++m) {
    const double token_s = compute.seconds_per_token(m * question.page_tokens);
    if (token_s == 0) return question.begin;
    computed_s += token_s * question.page_tokens * question.compute_price;
    if (computed_s >= best_s) break;  // it only grows
    const double both_s = std::max(computed_s, loaded_s(m + 1));
    if (both_s >= best_s) continue;
    best = m + 1;
    best_s = both_s;
  }
  return best;
}

}  // namespace spillway::cache
