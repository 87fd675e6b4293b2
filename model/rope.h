// The rotation table of a layer group, from the model's description. Pure; any thread.
#pragma once

#include <span>

#include "kernels/ops.h"
#include "model/config.h"

namespace spillway::model {

// `factors` divide the frequency of each pair (Llama 3's rope_freqs.weight); empty or dims / 2
// long.
kernels::RopeTable make_rope(const RopeConfig& rope, kernels::RopeOrder order,
                             std::span<const float> factors);

}  // namespace spillway::model
