#include "kernels/cuda/pinned_words.h"

#include <new>
#include <utility>

#include "kernels/cuda/memory.h"
#include "runtime/check.h"

namespace spillway::kernels::cuda {

Result<> PinnedWords::allocate(const std::shared_ptr<Health>& health) {
  auto memory = allocate_pinned(health, kWords * sizeof(Line));
  if (!memory) return memory.error();
  void* device = nullptr;
  if (!health->ok(cudaHostGetDevicePointer(&device, memory->data, 0), "cudaHostGetDevicePointer")) {
    return *health->failure();
  }
  memory_ = std::move(*memory);
  device_ = reinterpret_cast<CUdeviceptr>(device);
  lines_ = new (memory_.data) Line[kWords]{};
  for (uint32_t i = kWords; i > 0; --i) free_.push_back(i - 1);
  return Result<>();
}

Word PinnedWords::take() {
  CHECK(!free_.empty());
  const uint32_t index = free_.back();
  free_.pop_back();
  lines_[index].word.store(0, std::memory_order_relaxed);
  return {&lines_[index].word, device_ + index * sizeof(Line)};
}

void PinnedWords::give_back(Word word) {
  const auto offset = reinterpret_cast<std::byte*>(word.host) - memory_.data;
  free_.push_back(static_cast<uint32_t>(offset / static_cast<ptrdiff_t>(sizeof(Line))));
}

void PinnedWords::set_all(uint32_t value) {
  for (uint32_t i = 0; lines_ != nullptr && i < kWords; ++i) {
    lines_[i].word.store(value, std::memory_order_release);
  }
}

}  // namespace spillway::kernels::cuda
