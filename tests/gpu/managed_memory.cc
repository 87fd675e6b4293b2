#include "tests/gpu/managed_memory.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "kernels/cuda/runtime_api.h"

namespace spillway::kernels::cuda {
namespace {

// Far more than the tests have at a time; what nobody touches takes no memory.
constexpr size_t kArenaBytes = size_t{8} << 30;
constexpr size_t kHeaderBytes = 16;

struct FreeBlock {
  FreeBlock* next;
};

// Right before what was handed out.
struct Header {
  uint32_t size_class;  // the block has 2^that bytes
  uint32_t offset;      // of what was handed out, in the block
};
static_assert(sizeof(Header) <= kHeaderBytes);

// Blocks of powers of two, which go to a list of their size and come back from there.
struct Arena {
  std::mutex mutex;
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  std::byte* next = nullptr;
  std::array<FreeBlock*, 64> free{};

  std::byte* take_block(uint32_t size_class) {
    if (FreeBlock* const block = free[size_class]; block != nullptr) {
      free[size_class] = block->next;
      return reinterpret_cast<std::byte*>(block);
    }
    const size_t bytes = size_t{1} << size_class;
    if (static_cast<size_t>(end - next) < bytes) return nullptr;
    std::byte* const block = next;
    next += bytes;
    return block;
  }
};

// operator new has nowhere else to keep it.
constinit Arena arena;

}  // namespace

std::optional<std::string> open_managed_memory() {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocManaged(&memory, kArenaBytes, cudaMemAttachGlobal);
  if (error != cudaSuccess) {
    return std::string("cudaMallocManaged: ") + cudaGetErrorString(error);
  }
  const std::lock_guard lock(arena.mutex);
  arena.begin = arena.next = static_cast<std::byte*>(memory);
  arena.end = arena.begin + kArenaBytes;
  return std::nullopt;
}

static void* allocate(size_t bytes, size_t alignment) {
  const std::lock_guard lock(arena.mutex);
  if (arena.begin == nullptr) {
    const size_t whole = (bytes + alignment - 1) / alignment * alignment;
    return std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  }
  const size_t needed = bytes + kHeaderBytes + alignment;
  const auto size_class = static_cast<uint32_t>(std::bit_width(needed - 1));
  std::byte* const block = arena.take_block(size_class);
  if (block == nullptr) {  // elsewhere the GPU could not reach it
    std::fputs("the managed memory of the tests is used up\n", stderr);
    std::abort();
  }
  const auto from = reinterpret_cast<uintptr_t>(block) + kHeaderBytes;
  const uintptr_t at = (from + alignment - 1) / alignment * alignment;
  const auto offset = static_cast<uint32_t>(at - reinterpret_cast<uintptr_t>(block));
  *reinterpret_cast<Header*>(at - kHeaderBytes) = {size_class, offset};
  return reinterpret_cast<void*>(at);
}

static void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(arena.mutex);
  auto* const at = static_cast<std::byte*>(memory);
  if (at < arena.begin || at >= arena.end) {
    std::free(memory);
    return;
  }
  const Header header = *reinterpret_cast<Header*>(at - kHeaderBytes);
  auto* const block = reinterpret_cast<FreeBlock*>(at - header.offset);
  block->next = arena.free[header.size_class];
  arena.free[header.size_class] = block;
}

}  // namespace spillway::kernels::cuda

// The others of the standard's call these.
void* operator new(size_t bytes) {
  return spillway::kernels::cuda::allocate(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return spillway::kernels::cuda::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { spillway::kernels::cuda::give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  spillway::kernels::cuda::give_back(memory);
}
// So that no library's own allocator is asked to free what this one gave.
void operator delete(void* memory, size_t) noexcept { spillway::kernels::cuda::give_back(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  spillway::kernels::cuda::give_back(memory);
}
