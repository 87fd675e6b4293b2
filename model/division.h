// How a model is divided over the devices that compute it together: which layers, heads, columns of
// the MLP and rows of the vocabulary each rank owns. Pure.
//
// Ranks come in `pipeline` stages of `tensor` ranks: rank = stage * tensor + place. A stage has its
// layers, the ranks of a stage have parts of each of them:
//   attention    runs of KV heads with the query heads that share them, as even as they come;
//                with fewer KV heads than ranks a KV head lies on several ranks, which divide its
//                query heads
//   MLP          columns of gate and up, and with them rows (inputs) of down
//   vocabulary   rows of the embedding and of the output matrix, so that no rank holds either
//                whole: looked up by who has the row and summed with the others' zeros; logits are
//                gathered
// Norms and the residual are on every rank of a stage. Inputs of a matrix are cut where blocks of
// its format begin, 32 or 256 inputs, so parts may be uneven.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/tensors.h"
#include "runtime/result.h"

namespace spillway::model {

struct Division {
  uint32_t tensor = 1;    // ranks of a stage (--tensor-parallel-size)
  uint32_t pipeline = 1;  // stages (--pipeline-parallel-size)

  uint32_t ranks() const { return tensor * pipeline; }
  bool operator==(const Division&) const = default;
};

struct Range {  // [first, end)
  uint32_t first = 0;
  uint32_t end = 0;

  uint32_t count() const { return end - first; }
  bool operator==(const Range&) const = default;
};

struct RankShare {
  uint32_t stage = 0;
  uint32_t place = 0;  // in the stage
  bool embeds = true;  // in the first stage
  bool draws = true;   // in the last stage: has a part of the output matrix
  Range layers;
  Range heads;     // of queries
  Range kv_heads;  // may be other ranks' too
  Range feed_forward;
  Range vocabulary;
};

// Elements that may not be parted, of the inputs of the matrices that are cut along them.
struct DivisionBlocks {
  uint32_t attention_output = 1;
  uint32_t down = 1;
};
DivisionBlocks division_blocks(const ModelTensors& tensors);

// (rank). Fails where the model has too little of something to go round; the message says what.
Result<std::vector<RankShare>> divide(const ModelConfig& config, const DivisionBlocks& blocks,
                                      const Division& division);

// What a rank computes, as a model of its own: fewer layers, heads and columns; `vocabulary` is the
// number of its rows. A group none of whose layers it has keeps its place, without layers.
ModelConfig config_of_rank(const ModelConfig& config, const RankShare& share);

}  // namespace spillway::model
