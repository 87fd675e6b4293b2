// The simulated cuBLASLt sees what the real one would answer with garbage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "kernels/cuda/blas_plan.h"
#include "tests/kernels/cuda/cuda_machine.h"

namespace spillway::kernels::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kWorkspace = 1 << 20;

struct SimulatedBlasTest : testing::Test {
  CudaMachine machine;
  CudaDevice& device = *machine.make_device();
  const BlasCalls calls = load_blas_calls().value();
  DeviceMemory memory = device.allocate(kWorkspace + (1 << 16)).value();
  cublasLtHandle_t library = nullptr;
  std::optional<BlasPlan> plan, other;

  // 16 outputs of 64 inputs by 4 rows, in this memory.
  struct Call {
    std::byte *weights, *x, *y, *workspace;
    size_t workspace_bytes = kWorkspace;
    const BlasPlan* plan = nullptr;
    const BlasPlan* layouts = nullptr;  // null: the plan's
    float alpha = 1;
  };

  void SetUp() override {
    ASSERT_EQ(calls.create(&library), CUBLAS_STATUS_SUCCESS);
    plan = make_blas_plan(calls, library, {.outputs = 16, .inputs = 64, .rows = 4, .stride = 16},
                          kWorkspace);
    other = make_blas_plan(calls, library, {.outputs = 16, .inputs = 64, .rows = 3, .stride = 16},
                           kWorkspace);
    ASSERT_TRUE(plan);
    ASSERT_TRUE(other);
  }
  void TearDown() override { calls.destroy(library); }

  cublasStatus_t multiply(const std::function<void(Call&)>& change) {
    std::byte* const rest = memory.data + kWorkspace;
    Call call{rest, rest + 4096, rest + 8192, memory.data, kWorkspace, &*plan, nullptr, 1};
    change(call);
    const BlasPlan& layouts = call.layouts != nullptr ? *call.layouts : *call.plan;
    const float zero = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    device.compute().launch([&](Team&) {
      status =
          calls.multiply(library, call.plan->product.get(), &call.alpha, call.weights,
                         layouts.weights.get(), call.x, layouts.x.get(), &zero, call.y,
                         layouts.y.get(), call.y, layouts.y.get(), &call.plan->algorithm,
                         call.workspace, call.workspace_bytes, device.native(device.compute()));
    });
    return status;
  }
  void expect_misuse(const std::function<void(Call&)>& change, const char* what) {
    EXPECT_EQ(multiply(change), CUBLAS_STATUS_INVALID_VALUE) << what;
    EXPECT_THAT(machine.cuda.take_misuse(), ElementsAre(HasSubstr(what)));
  }
};

TEST_F(SimulatedBlasTest, a_good_call_is_no_misuse) {
  EXPECT_EQ(multiply([](Call&) {}), CUBLAS_STATUS_SUCCESS);
  machine.finish(device.compute());
  EXPECT_THAT(machine.cuda.take_misuse(), IsEmpty());
}

TEST_F(SimulatedBlasTest, each_rule_broken_is_seen) {
  expect_misuse([](Call& call) { call.weights += 16; }, "with A less aligned");
  expect_misuse([](Call& call) { call.x += 128; }, "with B less aligned");
  expect_misuse([](Call& call) { call.y += 8; }, "with D less aligned");
  expect_misuse([](Call& call) { call.workspace_bytes = 128; }, "in too small a workspace");
  expect_misuse([&](Call& call) { call.layouts = &*other; }, "of another shape");
  expect_misuse([](Call& call) { call.alpha = 2; }, "of another shape");
}

TEST_F(SimulatedBlasTest, what_overlaps_or_is_no_gpus_is_seen) {
  EXPECT_EQ(multiply([](Call& call) { call.y = call.x; }), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(machine.cuda.take_misuse(), ElementsAre("cublasLtMatmul with D over B"));
  EXPECT_EQ(multiply([](Call& call) { call.workspace = call.weights - 256; }),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_FALSE(machine.cuda.take_misuse().empty());
  alignas(256) static std::byte host[4096];
  expect_misuse([](Call& call) { call.x = host; }, "with B outside of the GPU's memory");
}

TEST_F(SimulatedBlasTest, memory_that_is_freed_before_the_product_runs_is_seen) {
  EXPECT_EQ(multiply([](Call&) {}), CUBLAS_STATUS_SUCCESS);
  memory = {};
  machine.cuda.run_all();
  EXPECT_THAT(machine.cuda.take_misuse(), testing::Contains(HasSubstr("memory that was freed")));
}

}  // namespace
}  // namespace spillway::kernels::cuda
