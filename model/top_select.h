// The most likely tokens of a row, without sorting the row.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/token.h"

namespace spillway::model {

struct Candidate {
  float value = 0;  // a logit; any order-giving number that is not NaN
  TokenId token = -1;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// The order of all selections: greater value first, ties by lower token id.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// Sorts by ranks_before. REQUIRES: tokens ascending on entry (that makes a stable radix sort
// enough). Linear for long lists; `spare` is scratch.
void sort_candidates(std::vector<Candidate>& candidates, std::vector<Candidate>& spare);

// The `count` first of the row by ranks_before, sorted, into `out`; values of -infinity are left
// out. One pass that keeps at most 2 * count candidates: for 40 of 262,144 about 0.1 ms.
void select_top(std::span<const float> row, size_t count, std::vector<Candidate>& out,
                std::vector<Candidate>& spare);

// How many of the row rank before `token`. REQUIRES: token in the row.
size_t rank_of(std::span<const float> row, TokenId token);

}  // namespace spillway::model
