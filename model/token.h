// The id of a token in a model's vocabulary.
#pragma once

#include <cstdint>

namespace spillway::model {

using TokenId = int32_t;  // -1: none

}  // namespace spillway::model
