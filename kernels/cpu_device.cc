#include "kernels/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "kernels/cpu_event.h"
#include "kernels/cpu_gate.h"
#include "kernels/cpu_stream.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// The number of the first hardware thread on the core of `cpu`; `cpu` itself if unknown.
uint32_t first_sibling(uint32_t cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  uint32_t first = cpu;  // the file starts with the least number: "0,4" or "0-1"
  file >> first;
  return file ? first : cpu;
}

// Where `threads` workers are pinned: one to each core, or one to each hardware thread, when that
// is all that this process may use. Empty otherwise: a smaller team is better placed by the system,
// which sees who else is there (two servers of one thread each would both sit on the first core).
std::vector<uint32_t> choose_cpus(uint32_t threads) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::vector<uint32_t> cores, all;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    all.push_back(cpu);
    if (first_sibling(cpu) == cpu) cores.push_back(cpu);
  }
  if (threads == cores.size()) return cores;
  if (threads == all.size()) return all;
  return {};
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : options_(options),
        compute_(
            {.name = "compute",
             .threads = options.threads,
             .pin_cpus = options.pin ? choose_cpus(options.threads) : std::vector<uint32_t>{}}),
        copy_in_({.name = "copy in", .threads = 1, .pin_cpus = {}}),
        copy_out_({.name = "copy out", .threads = 1, .pin_cpus = {}}) {}

  Result<DeviceMemory> allocate(size_t bytes) override;
  Result<DeviceMemory> allocate_host(size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  std::unique_ptr<Gate> make_gate() override { return std::make_unique<CpuGate>(); }
  Stream& compute() override { return compute_; }
  Stream& copy_in() override { return copy_in_; }
  Stream& copy_out() override { return copy_out_; }
  std::string description() const override {
    return "cpu " + options_.level + ", " + std::to_string(options_.threads) +
           (options_.threads == 1 ? " thread" : " threads");
  }

 private:
  const CpuDeviceOptions options_;
  CpuStream compute_, copy_in_, copy_out_;
};

// Maps 2 MiB more than asked for, so that the block starts on a huge page: a KV pool is walked at
// random, and with 4 KiB pages each step would miss the TLB.
Result<DeviceMemory> CpuDevice::allocate(size_t bytes) {
  if (bytes == 0) return DeviceMemory{};
  const size_t mapped = bytes <= SIZE_MAX - kHugePage ? bytes + kHugePage : SIZE_MAX;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return Error{ErrorCode::kResourceExhausted, "cannot allocate " + std::to_string(bytes) +
                                                    " bytes of memory (" + std::strerror(errno) +
                                                    "); ask for less"};
  }
  const auto address = reinterpret_cast<uintptr_t>(base);
  const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  auto* data = reinterpret_cast<std::byte*>(aligned);
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: works without
  std::shared_ptr<void> owner(base, [mapped](void* at) { munmap(at, mapped); });
  return DeviceMemory{.data = data, .bytes = bytes, .owner = std::move(owner)};
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  CHECK(options.threads > 0);
  return std::make_unique<CpuDevice>(options);
}

}  // namespace spillway::kernels
