// A block of f32 scratch memory, aligned to a cache line, contents undefined. Owner: whoever holds
// it; one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace spillway::kernels {

class AlignedFloats {
 public:
  explicit AlignedFloats(size_t count = 0) { grow(count); }

  // Room for at least `count`; contents are lost when it grows.
  void grow(size_t count) {
    if (count <= count_) return;
    memory_.reset(static_cast<float*>(::operator new(count * sizeof(float), kAlignment)));
    count_ = count;
  }
  float* data() { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<float, Free> memory_;
  size_t count_ = 0;
};

}  // namespace spillway::kernels
