// How fast a folder's disk gives back what was written to it, past the page cache.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/result.h"

namespace spillway::bench {

// Seconds to read `bytes` of a fresh file in order, by several threads at once; the file is gone
// afterwards. Where the file system has no O_DIRECT, through its cache: too good.
Result<double> disk_read_seconds(const std::string& folder, size_t bytes);

}  // namespace spillway::bench
