#include "kernels/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "kernels/packed_format.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunkBytes = size_t{32} << 20;

}  // namespace

std::shared_ptr<std::byte> allocate_weights(size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const size_t mapped = bytes + (huge ? kHugePage : 0);  // room to start on a huge page
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  // A wish: a system that refuses it is slower, no more.
  if (huge) madvise(memory, mapped, MADV_HUGEPAGE);
  const std::shared_ptr<void> mapping(memory, [mapped](void* start) { munmap(start, mapped); });
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const size_t skip = huge ? (kHugePage - address % kHugePage) % kHugePage : 0;
  return {mapping, static_cast<std::byte*>(memory) + skip};
}

std::shared_ptr<std::byte> WeightArena::take(size_t bytes) {
  if (chunk_ == nullptr || chunk_bytes_ - used_ < bytes) {
    chunk_bytes_ = std::max(bytes, kChunkBytes);
    chunk_ = allocate_weights(chunk_bytes_);
    used_ = 0;
  }
  std::shared_ptr<std::byte> out(chunk_, chunk_.get() + used_);
  used_ = std::min(align_to_vector(used_ + bytes), chunk_bytes_);
  return out;
}

}  // namespace spillway::kernels
