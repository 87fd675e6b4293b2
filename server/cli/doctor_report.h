// What `spillway doctor` found, and how it says so. Pure: any machine can be made up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu_level.h"
#include "kernels/paged_kv.h"
#include "server/cli/measure_device.h"
#include "server/cli/measure_disk.h"

namespace spillway::server {

struct MachineFacts {
  kernels::CpuFeatures features;
  kernels::CpuLevel level{};  // that the kernels take
  uint32_t threads = 1;
  uint64_t memory_bytes = 0, memory_free_bytes = 0;
  std::string huge_pages;  // the kernel's setting: "always", "madvise", "never"; empty: not known
  uint64_t huge_bytes = 0, huge_bytes_asked = 0;  // that came in huge pages, of a block like a pool
  uint64_t lockable_bytes = UINT64_MAX;           // RLIMIT_MEMLOCK
  bool privileged = false;                        // root is not held to it
  std::vector<std::string> gpus;                  // a line each, or one that says why there is none
  bool gpu_usable = false;
};

struct ModelFigures {
  std::string name;
  std::vector<kernels::KvGroupLayout> groups;
  uint64_t weight_bytes = 0;
  uint32_t context_tokens = 0;
  ComputeFigures compute;
};

struct DoctorReport {
  MachineFacts machine;
  uint64_t copy_page_bytes = 0;
  CopyFigures copies;
  std::optional<ModelFigures> model;
  DiskMeasurement disk;
};

// What this machine does not give, why, and what would change it: a sentence each.
std::vector<std::string> refusals(const DoctorReport& report);

// The whole report, many lines.
std::string doctor_text(const DoctorReport& report);

}  // namespace spillway::server
