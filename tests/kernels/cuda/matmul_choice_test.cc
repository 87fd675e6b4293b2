// Which kernel a product is given to.
#include <gtest/gtest.h>

#include "kernels/cuda/matmul.cuh"

namespace spillway::kernels::cuda {
namespace {

TEST(CudaMatmulChoiceTest, few_rows_many_rows_and_grids_that_fill_a_gpu_have_a_kernel_each) {
  EXPECT_EQ(matmul_kernel_for(4096, 1), MatmulKernel::kFew);
  EXPECT_EQ(matmul_kernel_for(128256, 16), MatmulKernel::kFew);
  EXPECT_EQ(matmul_kernel_for(4096, 17), MatmulKernel::kNarrow);
  EXPECT_EQ(matmul_kernel_for(4096, 256), MatmulKernel::kNarrow);
  EXPECT_EQ(matmul_kernel_for(4096, 512), MatmulKernel::kWide);
  EXPECT_EQ(matmul_kernel_for(14336, 17), MatmulKernel::kWide);
  EXPECT_EQ(matmul_kernel_for(128256, 64), MatmulKernel::kWide);
}

}  // namespace
}  // namespace spillway::kernels::cuda
