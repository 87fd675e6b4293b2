#include "cache/load_plan.h"

#include <algorithm>

#include "runtime/check.h"

namespace spillway::cache {

Meeting meeting_of(const LoadQuestion& question, const ComputeRate& compute) {
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
  Meeting best{question.begin, std::max(gap_s, loaded_s(question.begin))};
  for (uint32_t m = question.begin; m < question.end; ++m) {
    const double page_s = computed_of(m);
    if (page_s == 0) return {question.begin, loaded_s(question.begin)};
    computed_s += page_s;
    if (computed_s >= best.seconds) break;  // it only grows
    const double both_s = std::max(computed_s, loaded_s(m + 1));
    if (both_s < best.seconds) best = {m + 1, both_s};
  }
  return best;
}

namespace {

// The step begins with the first band there, and ends no sooner than a band's part of its own time
// after the last.
double seconds_by_bands(const BandsQuestion& question) {
  const double band = 1.0 / question.bands;
  return std::max(question.load_seconds * band + question.compute_seconds,
                  question.load_seconds + question.compute_seconds * band);
}

double seconds_otherwise(const BandsQuestion& question) {
  return question.otherwise_seconds + question.compute_seconds;
}

bool may_pay(const BandsQuestion& question) {
  return question.bands > 1 && question.compute_seconds > 0;
}

}  // namespace

bool bands_pay(const BandsQuestion& question) {
  return may_pay(question) && seconds_by_bands(question) <= 0.95 * seconds_otherwise(question);
}

bool bands_still_pay(const BandsQuestion& question) {
  return may_pay(question) && seconds_by_bands(question) <= seconds_otherwise(question);
}

bool may_begin_under_load(const BandsQuestion& question) {
  return may_pay(question) && question.load_seconds <= question.compute_seconds;
}

}  // namespace spillway::cache
