// How fast the disk under a directory moves KV pages, through the rings that the tiers use:
// io_uring where it works, and the threads that stand in for it. In a temporary file of 256 MiB at
// most, which has no name any more while it is measured, so nothing stays behind even if the
// process is killed.
//
// Blocks the calling thread for about `seconds`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace spillway::server {

struct MeasureDiskOptions {
  std::string directory;
  std::vector<uint64_t> page_bytes;  // sizes in use, multiples of 4 KiB
  std::span<std::byte> memory;       // for transfers; at least two of the largest pages
  double seconds = 4;
};

struct DiskFigures {
  bool io_uring = false;
  uint64_t page_bytes = 0;
  uint32_t depth = 0;            // pages in flight
  double write_bytes_per_s = 0;  // flush included
  double read_bytes_per_s = 0;
  double page_s = 0;  // to read one page alone
};

struct DiskMeasurement {
  std::string directory;
  uint64_t free_bytes = 0;
  bool direct = false;               // O_DIRECT
  std::string why_not_io_uring;      // empty: it works
  std::string why_not_registered;    // empty: the memory is known to io_uring
  std::vector<DiskFigures> figures;  // io_uring's first
};

// Whether a file can be made there at all. Errors, here and below, name the directory and what to
// do.
Result<> check_directory(const std::string& directory);

Result<DiskMeasurement> measure_disk(const MeasureDiskOptions& options);

}  // namespace spillway::server
