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

  double seconds() const { return queued_seconds + load_seconds * (end - begin); }  // to load all
};

struct Meeting {
  uint32_t page = 0;   // m: pages [begin, m) are computed and [m, end) loaded
  double seconds = 0;  // until both have ended
};

// Where in [begin, end] both should meet. Minimises the later of the two ends; all is loaded
// (m = begin) while the compute rate is unknown.
Meeting meeting_of(const LoadQuestion& question, const ComputeRate& compute);
inline uint32_t meeting_point(const LoadQuestion& question, const ComputeRate& compute) {
  return meeting_of(question, compute).page;
}

// A prefix that could come up wholly by load, with a suffix to compute. By bands of layers, the
// suffix's first layers run while later layers of the prefix still come: the prefix's front is not
// computed then, for what is computed meanwhile is the suffix.
struct BandsQuestion {
  uint32_t bands = 1;            // of a page
  double load_seconds = 0;       // until all of it is there, others' loads included
  double compute_seconds = 0;    // of the step that would run meanwhile; 0: unknown
  double otherwise_seconds = 0;  // until the prefix is there where load and recompute meet
};

// Whether to load by bands, which reads smaller pieces, at all: where it takes a twentieth off.
bool bands_pay(const BandsQuestion& question);

// Whether to go on so, rather than compute the front while it still comes.
bool bands_still_pay(const BandsQuestion& question);

// Whether to begin that step now, with `load_seconds` left and a band of each page there at least.
// The load should end before the step would: then it waits for its last band at most, and for no
// longer than it computes behind that.
bool may_begin_under_load(const BandsQuestion& question);

}  // namespace spillway::cache
