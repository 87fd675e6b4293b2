// The tensors of one rank of a divided model (division.h): views into the file where a part is
// contiguous there, copies where it is not.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "model/division.h"
#include "model/tensors.h"

namespace spillway::model {

struct TensorShards {
  ModelTensors tensors;  // of config_of_rank()'s shapes; views into the file and into `copies`
  std::vector<std::unique_ptr<std::byte[]>>
      copies;  // inputs of the matrices that are cut along them
};

// `config` is the whole model's. Matrices that the rank has no part of have no outputs.
TensorShards tensors_of_rank(const ModelTensors& tensors, const ModelConfig& config,
                             const RankShare& share);

}  // namespace spillway::model
