// The sixteen values that a nibble of IQ4_NL stands for, a constant of the format.
#pragma once

#include <cstdint>

namespace spillway::kernels {

inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace spillway::kernels
