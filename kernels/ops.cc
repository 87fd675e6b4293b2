#include "kernels/ops.h"

#include <cmath>

#include "kernels/ops_levels.h"
#include "runtime/check.h"

namespace spillway::kernels {

RopeTable make_rope_table(const RopeSettings& settings) {
  CHECK(settings.dims % 2 == 0);
  CHECK(settings.factors.empty() || settings.factors.size() == settings.dims / 2);
  RopeTable table{.order = settings.order,
                  .dims = settings.dims,
                  .inverse_frequencies = {},
                  .magnitude = settings.magnitude};
  for (uint32_t pair = 0; pair < settings.dims / 2; ++pair) {
    const double factor = settings.factors.empty() ? 1.0 : settings.factors[pair];
    const double exponent = -2.0 * pair / settings.dims;
    table.inverse_frequencies.push_back(std::pow(settings.base, exponent) * settings.scale /
                                        factor);
  }
  return table;
}

void rope_angles(const RopeTable& table, uint32_t position, float* angles) {
  const uint32_t pairs = table.dims / 2;
  float* cosines = angles;
  float* sines = angles + table.dims;
  for (uint32_t pair = 0; pair < pairs; ++pair) {
    const bool halves = table.order == RopeOrder::kHalves;
    const uint32_t first = halves ? pair : 2 * pair;
    const uint32_t second = halves ? pair + pairs : 2 * pair + 1;
    const double angle = position * table.inverse_frequencies[pair];
    const float cosine = static_cast<float>(std::cos(angle)) * table.magnitude;
    const float sine = static_cast<float>(std::sin(angle)) * table.magnitude;
    cosines[first] = cosines[second] = cosine;
    sines[first] = -sine;
    sines[second] = sine;
  }
}

const RowOps& row_ops(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return row_ops_avx512();
  if (level >= CpuLevel::kAvx2) return row_ops_avx2();
  return row_ops_baseline();
}

}  // namespace spillway::kernels
