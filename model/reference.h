// The forward pass once more, plain: f32 weights as dequantised from the file, one sequence, one
// loop after the other, nothing shared with the fast path but the model's description. Tests check
// the transformer against it. Slow: for small models and short texts.
#pragma once

#include <span>
#include <vector>

#include "model/config.h"
#include "model/tensors.h"
#include "model/token.h"

namespace spillway::model {

// Logits (token, vocabulary) of every position of the sequence, which starts at position 0.
std::vector<float> reference_logits(const ModelConfig& config, const ModelTensors& tensors,
                                    std::span<const TokenId> tokens);

}  // namespace spillway::model
