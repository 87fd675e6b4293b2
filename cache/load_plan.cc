#include "cache/load_plan.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::cache {

uint32_t meeting_point(const LoadQuestion& question, const ComputeRate& compute) {
  CHECK(question.begin <= question.end);
  CHECK(question.gap <= question.begin);
  const auto computed_of = [&](uint32_t page) {
    const double token_s = compute.seconds_per_token(page * question.page_tokens);
    return token_s * question.page_tokens * question.compute_price;
  };
  double computed_s = 0;
  for (uint32_t i = 0; i < question.gap; ++i) computed_s += computed_of(question.begin - 1 - i);
  const double gap_s = computed_s;
  computed_s += compute.step_seconds() * question.compute_price;
  const auto loaded_s = [&](uint32_t from) {
    return from == question.end
               ? 0.0
               : question.queued_seconds + (question.end - from) * question.load_seconds;
  };
  uint32_t best = question.begin;
  double best_s = std::max(gap_s, loaded_s(question.begin));
  for (uint32_t m = question.begin; m < question.end; ++m) {
    const double page_s = computed_of(m);
    if (page_s == 0) return question.begin;
    computed_s += page_s;
    if (computed_s >= best_s) break;  // it only grows
    const double both_s = std::max(computed_s, loaded_s(m + 1));
    if (both_s >= best_s) continue;
    best = m + 1;
    best_s = both_s;
  }
  return best;
}

}  // namespace spillway::cache
