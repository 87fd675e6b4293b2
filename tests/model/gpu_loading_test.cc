// What is loaded before the first step: every kernel that any operator may come to launch, whatever
// the model and the step.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "kernels/cuda/every_attention_kernel.cuh"
#include "kernels/cuda/every_matmul_kernel.cuh"
#include "kernels/cuda/every_page_kernel.cuh"
#include "kernels/cuda/every_row_kernel.cuh"
#include "kernels/cuda/every_sampling_kernel.cuh"

namespace spillway::kernels::cuda {
namespace {

// Notes which kernels it is given, and runs none.
class Kernels {
 public:
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), const LaunchShape&, const Arguments&...) {
    seen_.insert(reinterpret_cast<uintptr_t>(kernel));
  }
  const std::set<uintptr_t>& seen() const { return seen_; }

 private:
  std::set<uintptr_t> seen_;
};

TEST(GpuLoading, every_kernel_of_attention_is_loaded) {
  Kernels loaded, launched;
  every_attention_kernel(loaded);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16}) {
    for (uint32_t head_dim = 2; head_dim <= 300; head_dim += 2) {
      for (const uint32_t kv_heads : {1u, 3u}) {
        for (uint32_t group = 1; group <= 70; ++group) {
          TiledAttentionArgs args;
          args.rows.kv.layout.type = type;
          args.rows.kv.layout.head_dim = head_dim;
          args.rows.kv.layout.kv_heads = kv_heads;
          args.rows.heads = kv_heads * group;
          tiled_attention(launched, args);
          attention(launched, args.rows);
        }
      }
    }
  }
  EXPECT_EQ(launched.seen(), loaded.seen());
  EXPECT_EQ(loaded.seen().size(), 3u * (4 + 3) + 1);
}

TEST(GpuLoading, every_kernel_of_products_is_loaded) {
  Kernels loaded, launched;
  every_matmul_kernel(loaded);
  quantize(launched, QuantizeArgs{});
  narrow(launched, NarrowArgs{});
  for (const TensorType type : kTensorTypes) {
    if (type != TensorType::kF32) unpack(launched, UnpackArgs{.w = {.type = type}});
    for (const uint32_t outputs : {1u, 300u, 4096u, 150'000u}) {
      for (uint32_t rows = 0; rows < 2000; ++rows) {
        MatmulArgs args;
        args.w.type = type;
        args.w.outputs = outputs;
        args.x.rows = rows;
        if (packed_format(type).is_quantized()) {
          matmul(launched, args);
        } else {
          matmul_floats(launched, MatmulFloatsArgs{.w = args.w, .rows = rows});
        }
      }
    }
  }
  EXPECT_EQ(launched.seen(), loaded.seen());
  EXPECT_EQ(loaded.seen().size(), 11u * 3 + 3 + 1 + 13 + 1);
}

TEST(GpuLoading, every_kernel_on_rows_is_loaded) {
  Kernels loaded;
  every_row_kernel(loaded);
  EXPECT_EQ(loaded.seen().size(), 7u + 14 + 3);  // of a kind each; of a tensor's type; of a page's
}

TEST(GpuLoading, every_kernel_on_pages_and_of_sampling_is_loaded) {
  Kernels pages, sampling;
  every_page_kernel(pages);
  EXPECT_EQ(pages.seen().size(), 5u);
  every_sampling_kernel(sampling);
  EXPECT_EQ(sampling.seen().size(), 3u);
}

}  // namespace
}  // namespace spillway::kernels::cuda
