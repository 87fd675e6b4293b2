// Comparing rows of logits or log-probabilities.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace spillway::model {

// Natural log-probabilities of one row of logits.
inline std::vector<float> log_softmax(std::span<const float> logits) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float x : logits) total += std::exp(x - greatest);
  std::vector<float> row;
  for (float x : logits) row.push_back(static_cast<float>(x - greatest - std::log(total)));
  return row;
}

// KL(reference || other) of two rows of log-probabilities.
inline double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    sum += std::exp(double{reference[i]}) * (double{reference[i]} - double{other[i]});
  }
  return sum;
}

inline double greatest_difference(std::span<const float> a, std::span<const float> b) {
  double greatest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    greatest = std::max(greatest, std::abs(double{a[i]} - double{b[i]}));
  }
  return greatest;
}

}  // namespace spillway::model
