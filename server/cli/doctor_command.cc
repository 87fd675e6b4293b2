#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/cpu_device.h"
#include "model/gguf.h"
#include "model/transformer.h"
#include "runtime/log.h"
#include "server/cli/commands.h"
#include "server/cli/doctor_report.h"
#include "server/cli/gpus.h"
#include "server/cli/kv_type.h"
#include "server/cli/load_model.h"
#include "server/cli/sizes.h"

namespace spillway::server {
namespace {

constexpr uint64_t kSlabBytes = uint64_t{64} << 20;
constexpr uint64_t kPageBytesWithoutModel = uint64_t{1} << 20;
// What part of the time goes to what.
constexpr double kCopyShare = 0.05, kComputeShare = 0.4, kDiskShare = 0.55;

// Bytes of a line "Name:   123 kB" of a file of /proc; 0: there is none.
uint64_t proc_bytes(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name))
      return std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;
  }
  return 0;
}

uint64_t huge_bytes_now() { return proc_bytes("/proc/self/smaps_rollup", "AnonHugePages:"); }

// "always [madvise] never" has the word in brackets in force.
std::string huge_page_setting() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(in, line);
  const size_t open = line.find('['), close = line.find(']');
  if (open == line.npos || close == line.npos || close < open) return {};
  return line.substr(open + 1, close - open - 1);
}

void add_gpus(MachineFacts& facts) {
  const auto gpus = find_gpus();
  if (!gpus) {
    facts.gpus = {gpus.error().message};
    return;
  }
  for (const kernels::GpuInfo& gpu : *gpus) {
    std::string& line =
        facts.gpus.emplace_back("cuda:" + std::to_string(gpu.index) + ", " + gpu.description());
    if (!gpu.has_kernels()) {
      line += ": too old, there are kernels from sm_80 on";
      continue;
    }
    const auto memory = gpu_memory(gpu.index);
    facts.gpu_usable |= memory.has_value();
    line +=
        memory ? ", " + bytes_text(memory->free_bytes) + " free" : ": " + memory.error().message;
  }
}

MachineFacts machine_facts(kernels::CpuLevel level, uint32_t threads) {
  MachineFacts facts;
  facts.features = kernels::cpu_features();
  facts.level = level;
  facts.threads = threads;
  facts.memory_bytes = proc_bytes("/proc/meminfo", "MemTotal:");
  facts.memory_free_bytes = proc_bytes("/proc/meminfo", "MemAvailable:");
  facts.huge_pages = huge_page_setting();
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.lockable_bytes = limit.rlim_cur;
  }
  facts.privileged = geteuid() == 0;
  add_gpus(facts);
  return facts;
}

// The model, or nothing where none is named and the default one is not there.
Result<std::unique_ptr<model::Transformer>> load(const DoctorOptions& options,
                                                 kernels::Device& device, kernels::CpuLevel level,
                                                 ModelFigures& figures) {
  const std::string path = model_path_or_default(options.path);
  std::error_code ec;
  if (options.path.empty() && !std::filesystem::exists(path, ec)) {
    return std::unique_ptr<model::Transformer>();
  }
  const auto file = model::GgufFile::open(path);
  if (!file) return file.error();
  const auto type = kv_type_of(options.kv_type);
  if (!type) return type.error();
  auto loaded = model::Transformer::create(
      *file, device,
      {.level = level, .kv_type = *type, .batch_tokens_max = 512, .threads = options.threads});
  if (!loaded) return loaded.error();
  figures.name = std::filesystem::path(path).filename().string();
  figures.groups = (*loaded)->shape().groups;
  figures.context_tokens = (*loaded)->shape().context_tokens_max;
  for (const model::GgufTensor& tensor : file->tensors()) {
    figures.weight_bytes += tensor.data.size();
  }
  return loaded;
}

std::vector<uint64_t> page_sizes(const std::optional<ModelFigures>& model) {
  if (!model) return {kPageBytesWithoutModel};
  std::vector<uint64_t> sizes;
  for (const auto& layout : model->groups) sizes.push_back(layout.page_bytes());
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Result<DoctorReport> examine(DoctorOptions options) {
  if (options.threads == 0) options.threads = std::max(1u, std::thread::hardware_concurrency());
  const auto level = kernels::cpu_level_from_environment();
  if (!level) return level.error();
  if (const auto usable = check_directory(options.kv_nvme_dir); !usable) return usable.error();
  DoctorReport report;
  report.machine = machine_facts(*level, options.threads);
  const auto device = kernels::make_cpu_device(
      {.threads = options.threads, .level = std::string(kernels::cpu_level_name(*level))});
  ModelFigures figures;
  const auto model = load(options, *device, *level, figures);
  if (!model) return model.error();
  if (*model != nullptr) {
    auto computed = measure_compute(**model, *device, options.seconds * kComputeShare);
    if (!computed) return computed.error();
    figures.compute = std::move(*computed);
    report.model = std::move(figures);
  }
  const std::vector<uint64_t> pages = page_sizes(report.model);
  const uint64_t huge_before = huge_bytes_now();
  const auto slab = device->allocate(std::max(kSlabBytes, 4 * pages.front()));
  if (!slab) return slab.error();
  std::memset(slab->data, 1, slab->bytes);
  report.machine.huge_bytes_asked = slab->bytes;
  report.machine.huge_bytes = huge_bytes_now() - std::min(huge_before, huge_bytes_now());
  report.copy_page_bytes = pages.front();
  report.copies = measure_copies(*device, {slab->data, slab->bytes}, pages.front(),
                                 options.seconds * kCopyShare);
  auto disk = measure_disk({.directory = options.kv_nvme_dir,
                            .page_bytes = pages,
                            .memory = {slab->data, slab->bytes},
                            .seconds = options.seconds * kDiskShare});
  if (!disk) return disk.error();
  report.disk = std::move(*disk);
  return report;
}

}  // namespace

int doctor_command(const DoctorOptions& options) {
  configure_log("warn");
  std::fprintf(stderr, "spillway: measuring for %.3g seconds; best while nothing else runs\n",
               options.seconds);
  const auto report = examine(options);
  if (!report) {
    std::fprintf(stderr, "spillway: %s\n", report.error().message.c_str());
    return 1;
  }
  std::fputs(doctor_text(*report).c_str(), stdout);
  return 0;
}

}  // namespace spillway::server
