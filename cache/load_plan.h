// Load or recompute, both at once: how much of a prefix that is not on the device is computed from
// the front while the rest is loaded from the back. After the idea of Cake (Jin et al., "Compute or
// load KV cache? Why not both?", ICML 2025), with compute priced by who else waits for it. Pure.
#pragma once

#include <cstdint>

#include "cache/tier_rates.h"

namespace spillway::cache {

struct LoadQuestion {
  uint32_t begin = 0, end = 0;  // pages that are missing: [begin, end) of the path
  uint32_t page_tokens = 16;
  double load_seconds = 0;    // of one page, at the rate measured
  double queued_seconds = 0;  // before the first of them can begin: others' loads
  uint32_t gap = 0;           // pages right before them that are computed in any case
  // What a second of compute costs, in seconds of this request's time: 1 for an idle engine, and
  // one more for each other sequence that could compute in it.
  double compute_price = 1;
};

// The position m in [begin, end] at which both should meet: pages [begin, m) are computed and
// [m, end) loaded. Minimises the later of the two ends; all is loaded (m = begin) while the compute
// rate is unknown.
uint32_t meeting_point(const LoadQuestion& question, const ComputeRate& compute);

}  // namespace spillway::cache
