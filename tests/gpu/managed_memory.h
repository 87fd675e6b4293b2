// Memory of the tests on a real GPU: their operator new, once this is open, gives managed memory,
// which host and GPU reach at one address, each while the other does nothing with it.
#pragma once

#include <optional>
#include <string>

namespace spillway::kernels::cuda {

// What was allocated before stays where it is, and is no memory of the GPU's. Once, in main(). What
// went wrong, else none.
std::optional<std::string> open_managed_memory();

}  // namespace spillway::kernels::cuda
