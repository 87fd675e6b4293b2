// Where the classes of code points change; see unicode.h for what to call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::model {

// Ascending: first code point of a run << 4 | its class.
extern const uint32_t kUnicodeRuns[];
extern const size_t kUnicodeRunCount;

}  // namespace spillway::model
