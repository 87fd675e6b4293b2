// Products of many rows by cuBLASLt, simulated, on a CUDA device of its own memory: the twin's
// within what 16 bits lose, whatever the parts; what is refused; and nothing of it waits or
// allocates.
#include "kernels/cuda/library_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/matrix.h"
#include "tests/kernels/cuda/cuda_machine.h"
#include "tests/kernels/random_tensor.h"

namespace spillway::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Product {
  TensorType type = TensorType::kQ4_0;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  uint32_t rows = 0;
};

// A matrix and activations, on the host and on the device, and where their product goes.
class Operands {
 public:
  Operands(CudaMachine& machine, const Product& product) : machine_(machine), product_(product) {
    const auto file = random_rows(product.type, product.outputs, product.inputs, product.rows);
    w_ = PackedMatrix::pack(CpuLevel::kBaseline, product.type, file.data(),
                            {product.outputs, product.inputs});
    x_ = random_floats(size_t{product.rows} * product.inputs, product.outputs);
    panels_ = up(w_.panel(0), w_.bytes());
    x_up_ = up(x_.data(), x_.size() * sizeof(float));
    y_ = machine.device->allocate(y_count() * sizeof(float)).value();
  }

  LibraryProductArgs args() const {
    return {.w = {.type = product_.type,
                  .panels = panels_.data,
                  .panel_bytes = w_.bytes() / w_.panels(),
                  .outputs = product_.outputs,
                  .inputs = product_.inputs},
            .x = reinterpret_cast<const float*>(x_up_.data),
            .y = reinterpret_cast<float*>(y_.data),
            .rows = product_.rows};
  }
  std::vector<float> result() {
    auto host = machine_.device->allocate_host(y_count() * sizeof(float)).value();
    machine_.device->compute().copy(host.data, y_.data, y_count() * sizeof(float));
    machine_.finish(machine_.device->compute());
    std::vector<float> out(y_count());
    std::memcpy(out.data(), host.data, y_count() * sizeof(float));
    return out;
  }
  // Each rounding to 16 bits loses a 2^-8th at most, and a sum's errors are as its terms'.
  void expect_near_twin(const std::vector<float>& got) const {
    std::vector<float> row(product_.inputs);
    for (uint32_t output = 0; output < product_.outputs; ++output) {
      w_.dequantize(output, row.data());
      for (uint32_t r = 0; r < product_.rows; ++r) {
        double sum = 0, magnitude = 0;
        for (uint32_t i = 0; i < product_.inputs; ++i) {
          const double term = double{row[i]} * x_[size_t{r} * product_.inputs + i];
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(got[size_t{r} * product_.outputs + output], sum, magnitude / 100)
            << "row " << r << ", output " << output;
      }
    }
  }

 private:
  size_t y_count() const { return size_t{product_.rows} * product_.outputs; }
  DeviceMemory up(const void* from, size_t bytes) {
    auto host = machine_.device->allocate_host(bytes).value();
    auto memory = machine_.device->allocate(bytes).value();
    std::memcpy(host.data, from, bytes);
    machine_.device->compute().copy(memory.data, host.data, bytes);
    machine_.finish(machine_.device->compute());
    return memory;
  }

  CudaMachine& machine_;
  const Product product_;
  PackedMatrix w_;
  std::vector<float> x_;
  DeviceMemory panels_, x_up_, y_;
};

constexpr ProductLimits kLimits{.rows = 40, .inputs = 512, .elements = size_t{512} * 200};

struct LibraryProductsTest : testing::Test {
  CudaMachine machine{{.seed = test_seed()}};
  CudaDevice& device = *machine.make_device();
  std::unique_ptr<LibraryProducts> products;
  std::string why;  // there are none

  void make(const LibraryProductOptions& options) {
    device.compute().launch([&](Team&) {
      auto made = make_library_products(device.native(device.compute()), options);
      if (made) {
        products = std::move(*made);
      } else {
        why = made.error().message;
      }
    });
  }
  void make_all_rows(size_t weight_bytes = size_t{1} << 20) {
    make({.quantized_rows_min = 1, .float_rows_min = 1, .weight_bytes = weight_bytes});
    ASSERT_TRUE(products->reserve(device, kLimits));
  }
  int enqueue(const LibraryProductArgs& args) {
    int error = 0;
    device.compute().launch([&](Team&) { error = products->enqueue(args); });
    return error;
  }
  void expect_product(const Product& product) {
    SCOPED_TRACE(testing::Message() << tensor_type_name(product.type) << " " << product.outputs
                                    << " x " << product.inputs << " by " << product.rows);
    Operands operands(machine, product);
    ASSERT_TRUE(products->takes(operands.args().w, product.rows));
    machine.cuda.forbid_waiting(true);
    EXPECT_EQ(enqueue(operands.args()), 0);
    machine.cuda.forbid_waiting(false);
    operands.expect_near_twin(operands.result());
    EXPECT_THAT(machine.cuda.take_misuse(), IsEmpty());
  }
  void TearDown() override { EXPECT_THAT(machine.cuda.take_misuse(), IsEmpty()); }
};

TEST_F(LibraryProductsTest, products_are_the_twins_within_what_16_bits_lose) {
  make_all_rows();
  const uint64_t allocations = machine.cuda.calls("cudaMalloc");
  for (const TensorType type : {TensorType::kF16, TensorType::kBf16, TensorType::kQ4_0,
                                TensorType::kQ8_0, TensorType::kQ6_K}) {
    const uint32_t inputs = type == TensorType::kQ6_K ? 512 : 96;
    for (const Product& product : {Product{type, 1, inputs, 1}, {type, 35, inputs, 3}}) {
      expect_product(product);
    }
  }
  // Those of the operands, and no other.
  EXPECT_EQ(machine.cuda.calls("cudaMalloc") - allocations, 10u * 3);
}

// By 16 outputs, by 128, and with a rest: each part is another product to the library.
TEST_F(LibraryProductsTest, matrices_that_the_memory_does_not_hold_are_multiplied_by_parts) {
  for (const size_t weight_bytes : {size_t{1}, size_t{128} * 64 * 2}) {
    make_all_rows(weight_bytes);
    const uint64_t before = machine.cuda.calls("cublasLtMatmul");
    expect_product({TensorType::kQ4_0, 200, 64, 2});
    EXPECT_EQ(machine.cuda.calls("cublasLtMatmul") - before, 2u);
    products.reset();
  }
  make_all_rows(1);
  const uint64_t before = machine.cuda.calls("cublasLtMatmul");
  expect_product({TensorType::kQ8_0, 50, 512, 2});
  EXPECT_EQ(machine.cuda.calls("cublasLtMatmul") - before, 4u);
}

TEST_F(LibraryProductsTest, the_library_is_asked_once_for_a_shape) {
  make_all_rows();
  const auto asked = [&] { return machine.cuda.calls("cublasLtMatmulAlgoGetHeuristic"); };
  for (const uint64_t expected : {1u, 1u, 1u}) {
    expect_product({TensorType::kQ4_0, 20, 64, 5});
    EXPECT_EQ(asked(), expected);
  }
  expect_product({TensorType::kQ4_0, 20, 64, 6});
  EXPECT_EQ(asked(), 2u);
}

TEST_F(LibraryProductsTest, few_rows_f32_and_odd_sizes_stay_with_our_kernels) {
  make({.quantized_rows_min = 20, .float_rows_min = 10});
  ASSERT_TRUE(products->reserve(device, kLimits));
  const auto takes = [&](TensorType type, uint32_t inputs, uint32_t rows) {
    return products->takes({.type = type, .outputs = 20, .inputs = inputs}, rows);
  };
  EXPECT_FALSE(takes(TensorType::kQ4_0, 64, 19));
  EXPECT_TRUE(takes(TensorType::kQ4_0, 64, 20));
  EXPECT_FALSE(takes(TensorType::kBf16, 64, 9));
  EXPECT_TRUE(takes(TensorType::kBf16, 64, 10));
  EXPECT_TRUE(takes(TensorType::kF16, 64, 40));
  EXPECT_FALSE(takes(TensorType::kF16, 64, 41));   // more than was reserved for
  EXPECT_FALSE(takes(TensorType::kF16, 544, 20));  // likewise
  EXPECT_FALSE(takes(TensorType::kF16, 72, 20));
  EXPECT_FALSE(takes(TensorType::kF32, 64, 20));
}

TEST_F(LibraryProductsTest, what_the_library_has_no_algorithm_for_stays_with_our_kernels) {
  make_all_rows();
  const DeviceMatrix w{.type = TensorType::kQ4_0, .outputs = 20, .inputs = 64};
  machine.cuda.fail_call("cublasLtMatmulAlgoGetHeuristic", cudaErrorNotSupported);
  EXPECT_FALSE(products->takes(w, 5));
  EXPECT_FALSE(products->takes(w, 5));
  EXPECT_TRUE(products->takes(w, 6));
}

TEST_F(LibraryProductsTest, a_workspace_too_small_for_any_algorithm_leaves_all_to_our_kernels) {
  make({.quantized_rows_min = 1, .workspace_bytes = 256});
  ASSERT_TRUE(products->reserve(device, kLimits));
  EXPECT_FALSE(products->takes({.type = TensorType::kQ4_0, .outputs = 20, .inputs = 64}, 5));
}

// The first error, whichever of the calls it is.
TEST_F(LibraryProductsTest, a_product_that_is_refused_says_so) {
  make_all_rows();
  Operands operands(machine, {TensorType::kQ4_0, 20, 64, 5});
  ASSERT_TRUE(products->takes(operands.args().w, 5));
  for (const uint32_t after : {0u, 1u}) {
    machine.cuda.fail_call("launch", cudaErrorLaunchFailure, after);
    EXPECT_EQ(enqueue(operands.args()), cudaErrorLaunchFailure);
  }
  machine.cuda.fail_call("launch", cudaErrorLaunchFailure, 2);
  EXPECT_EQ(enqueue(operands.args()), 999);
  machine.cuda.fail_call("cublasLtMatmul", cudaErrorLaunchFailure);
  EXPECT_EQ(enqueue(operands.args()), 999);
  EXPECT_EQ(enqueue(operands.args()), 0);
  operands.expect_near_twin(operands.result());
}

TEST_F(LibraryProductsTest, a_graph_computes_the_product_again) {
  make_all_rows();
  Operands operands(machine, {TensorType::kBf16, 20, 64, 5});
  ASSERT_TRUE(products->takes(operands.args().w, 5));
  std::unique_ptr<Graph> graph;
  device.compute().launch([&](Team&) {
    auto made = device.graphs().capture([&]() -> Result<> {
      if (products->enqueue(operands.args()) == 0) return {};
      return Error{ErrorCode::kIo, "refused"};
    });
    ASSERT_TRUE(made);
    graph = std::move(*made);
  });
  ASSERT_NE(graph, nullptr);
  device.compute().launch([&](Team&) { EXPECT_TRUE(graph->launch()); });
  operands.expect_near_twin(operands.result());
}

TEST_F(LibraryProductsTest, a_library_that_does_not_start_is_an_error) {
  machine.cuda.fail_call("cublasLtCreate", cudaErrorNoDevice);
  make({});
  EXPECT_EQ(products, nullptr);
  EXPECT_THAT(why, HasSubstr("does not start"));
}

TEST_F(LibraryProductsTest, a_gpu_too_small_for_it_says_what_for) {
  make({.workspace_bytes = size_t{1} << 40});
  const auto reserved = products->reserve(device, kLimits);
  ASSERT_FALSE(reserved);
  EXPECT_THAT(reserved.error().message, HasSubstr("--no-batch-invariant"));
}

}  // namespace
}  // namespace spillway::kernels::cuda
