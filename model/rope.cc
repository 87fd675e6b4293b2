#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway::model {
namespace {

// The pair that turns `turns` times over the trained context (YaRN, arXiv 2309.00071, eq. 17).
double pair_of_turns(const RopeConfig& rope, double turns) {
  const double wavelength = rope.original_context / (turns * 2 * std::numbers::pi);
  return rope.dims * std::log(wavelength) / (2 * std::log(double{rope.base}));
}

// Fast pairs keep their frequency, slow ones are stretched by the factor, those between are mixed.
void apply_yarn(const RopeConfig& rope, kernels::RopeTable& table) {
  const double low = std::max(0.0, std::floor(pair_of_turns(rope, rope.beta_fast)));
  const double high = std::min(rope.dims - 1.0, std::ceil(pair_of_turns(rope, rope.beta_slow)));
  for (size_t i = 0; i < table.inverse_frequencies.size(); ++i) {
    const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    const double kept = 1 - std::clamp(ramp, 0.0, 1.0);
    double& frequency = table.inverse_frequencies[i];
    frequency = frequency / rope.factor * (1 - kept) + frequency * kept;
  }
  table.magnitude *= static_cast<float>(1 + 0.1 * std::log(double{rope.factor}));
}

}  // namespace

kernels::RopeTable make_rope(const RopeConfig& rope, kernels::RopeOrder order,
                             std::span<const float> factors) {
  const bool linear = rope.scaling == RopeScaling::kLinear;
  kernels::RopeTable table = kernels::make_rope_table({.order = order,
                                                       .dims = rope.dims,
                                                       .base = rope.base,
                                                       .scale = linear ? 1.0 / rope.factor : 1.0,
                                                       .factors = factors,
                                                       .magnitude = rope.attention_factor});
  if (rope.scaling == RopeScaling::kYarn) apply_yarn(rope, table);
  return table;
}

}  // namespace spillway::model
