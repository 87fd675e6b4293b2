#include "kernels/cuda/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/check.h"

namespace spillway::kernels::cuda {
namespace {

constexpr size_t kAlignment = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

std::byte* align_up(void* at, size_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
}

Error too_much(size_t bytes, const char* where, const std::string& why) {
  return {ErrorCode::kResourceExhausted, "cannot allocate " + std::to_string(bytes) + " bytes of " +
                                             where + " (" + why + "); ask for less"};
}

// Frees, from any thread, what a device that is not lost still holds. A refusal ends nothing: if
// CUDA keeps the error, the device's next call is told of it too.
template <class Free>
void free_unless_lost(const Health& health, const Free& free) {
  if (health.lost()) return;
  if (free() != cudaSuccess) cudaGetLastError();  // else it is told of where nothing is wrong
}

// On a stream of its own: the device's may stand before a gate.
bool fill_with_zeros(Health& health, void* at, size_t bytes) {
  cudaStream_t stream = nullptr;
  if (!health.ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags")) {
    return false;
  }
  const bool zeroed = health.ok(cudaMemsetAsync(at, 0, bytes, stream), "cudaMemsetAsync") &&
                      health.ok(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return health.ok(cudaStreamDestroy(stream), "cudaStreamDestroy") && zeroed;
}

}  // namespace

Result<DeviceMemory> allocate_device(const std::shared_ptr<Health>& health, size_t bytes) {
  if (bytes == 0) return DeviceMemory{};
  if (!health->enter()) return *health->failure();
  if (bytes > SIZE_MAX - kAlignment) return too_much(bytes, "GPU memory", "no GPU has that");
  void* base = nullptr;
  const cudaError_t refused = cudaMalloc(&base, bytes + kAlignment);
  if (refused == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // else CUDA tells of it again where nothing is wrong
    size_t free_bytes = 0, all_bytes = 0;
    if (!health->ok(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo")) {
      return *health->failure();
    }
    return too_much(bytes, "GPU memory",
                    std::to_string(free_bytes) + " of " + std::to_string(all_bytes) + " are free");
  }
  if (!health->ok(refused, "cudaMalloc")) return *health->failure();
  std::shared_ptr<void> owner(
      base, [health](void* at) { free_unless_lost(*health, [at] { return cudaFree(at); }); });
  std::byte* const data = align_up(base, kAlignment);
  if (!fill_with_zeros(*health, data, bytes)) return *health->failure();
  return DeviceMemory{.data = data, .bytes = bytes, .owner = std::move(owner)};
}

Result<DeviceMemory> allocate_pinned(const std::shared_ptr<Health>& health, size_t bytes) {
  if (bytes == 0) return DeviceMemory{};
  if (!health->enter()) return *health->failure();
  if (bytes > SIZE_MAX / 2) return too_much(bytes, "pinned memory", "no machine has that");
  const size_t pinned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t mapped = pinned + kHugePage;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return too_much(bytes, "pinned memory", std::strerror(errno));
  std::byte* const data = align_up(base, kHugePage);
  madvise(data, pinned, MADV_HUGEPAGE);  // advice: works without
  const cudaError_t refused =
      cudaHostRegister(data, pinned, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (refused != cudaSuccess) munmap(base, mapped);
  if (refused == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return too_much(bytes, "pinned memory", error_text("cudaHostRegister", refused));
  }
  if (!health->ok(refused, "cudaHostRegister")) return *health->failure();
  std::shared_ptr<void> owner(data, [health, base, mapped](void* at) {
    // The driver's own hold on the pages keeps them from others until it has let go of them.
    free_unless_lost(*health, [at] { return cudaHostUnregister(at); });
    munmap(base, mapped);
  });
  return DeviceMemory{.data = data, .bytes = bytes, .owner = std::move(owner)};
}

}  // namespace spillway::kernels::cuda
