// cuBLASLt without a GPU: descriptors, what it would choose, and products on the simulated
// runtime's streams, in f32 on the CPU. As the library may, it sums in an order that hangs on the
// number of rows.
//
// What the library calls undefined is written down as misuse (SimulatedCuda::report()): addresses
// less aligned than the algorithm was asked for, another shape than it is for, a workspace too
// small, or that the operands lie in, memory that is no GPU's when the product is enqueued or has
// been freed when it runs. Calls of these names fail on demand (SimulatedCuda::fail_call()). What
// nobody destroys, and what is used afterwards, AddressSanitizer finds.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/cuda/blas_calls.h"
#include "kernels/half.h"
#include "tests/emulator/simulated_cuda.h"

struct cublasLtContext {
  bool used = false;
};
struct SimulatedProduct {
  bool transposes_a = false;
};
struct SimulatedLayout {
  cudaDataType type;
  uint64_t rows, columns, stride;
  size_t bytes() const {
    const size_t element = type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
    return rows == 0 || columns == 0 ? 0 : ((columns - 1) * stride + rows) * element;
  }
};
struct SimulatedPreference {
  uint64_t workspace_bytes = 0;
  std::array<uint32_t, 4> alignments{256, 256, 256, 256};  // of a, b, c, d
};

namespace {

using spillway::emulator::SimulatedCuda;

constexpr size_t kWorkspaceBytes = 4096;  // what the simulated algorithm takes

SimulatedCuda& cuda() { return SimulatedCuda::current(); }

template <class Thing>
cublasStatus_t make(Thing** made, const Thing& as) {
  *made = new Thing(as);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Thing>
cublasStatus_t destroy(Thing* thing) {
  delete thing;
  return CUBLAS_STATUS_SUCCESS;
}

// What an algorithm says of itself.
struct Algorithm {
  uint64_t outputs, rows, inputs, type, stride, workspace_bytes;
  std::array<uint32_t, 4> alignments;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

// Whether it is y = W x of 16-bit floats with sums and results in f32.
bool fits(const SimulatedProduct& product, const SimulatedLayout& a, const SimulatedLayout& b,
          const SimulatedLayout& c, const SimulatedLayout& d) {
  const bool halves = a.type == CUDA_R_16F || a.type == CUDA_R_16BF;
  const bool result = c.type == CUDA_R_32F && d.type == CUDA_R_32F;
  const bool sizes = product.transposes_a && a.rows == b.rows && d.rows == a.columns &&
                     d.columns == b.columns && c.rows == d.rows && c.columns == d.columns;
  const bool strides = a.stride >= a.rows && b.stride >= b.rows && d.stride >= d.rows;
  return halves && b.type == a.type && result && sizes && strides && a.stride % 8 == 0 &&
         b.stride % 8 == 0;
}

Algorithm algorithm_for(const SimulatedLayout& a, const SimulatedLayout& b,
                        const SimulatedLayout& d) {
  return {.outputs = a.columns,
          .rows = b.columns,
          .inputs = a.rows,
          .type = static_cast<uint64_t>(a.type),
          .stride = d.stride,
          .workspace_bytes = kWorkspaceBytes,
          .alignments = {}};
}

float widen(cudaDataType type, uint16_t bits) {
  return type == CUDA_R_16F ? spillway::kernels::f16_to_f32(bits)
                            : spillway::kernels::bf16_to_f32(bits);
}

struct Operands {
  SimulatedLayout a_layout, b_layout, d_layout;
  const uint16_t* a;
  const uint16_t* b;
  float* d;
  std::byte* workspace;
};

// Sums of so many interleaved parts, one after the other.
float dot(const Operands& on, uint64_t output, uint64_t row, uint64_t parts) {
  float sum = 0;
  for (uint64_t part = 0; part < parts; ++part) {
    float partial = 0;
    for (uint64_t k = part; k < on.a_layout.rows; k += parts) {
      partial += widen(on.a_layout.type, on.a[output * on.a_layout.stride + k]) *
                 widen(on.b_layout.type, on.b[row * on.b_layout.stride + k]);
    }
    sum += partial;
  }
  return sum;
}

void multiply(const Operands& on) {
  std::memset(on.workspace, 0xff, kWorkspaceBytes);
  const uint64_t parts = 1 + on.d_layout.columns % 4;
  for (uint64_t row = 0; row < on.d_layout.columns; ++row) {
    for (uint64_t output = 0; output < on.d_layout.rows; ++output) {
      on.d[row * on.d_layout.stride + output] = dot(on, output, row, parts);
    }
  }
}

struct Range {
  const char* name;
  const void* at;
  size_t bytes;
  size_t alignment;
  bool meets(const Range& other) const {
    const auto* const first = static_cast<const std::byte*>(at);
    const auto* const others = static_cast<const std::byte*>(other.at);
    return first < others + other.bytes && others < first + bytes;
  }
};

void report(const std::string& what) { cuda().report("cublasLtMatmul " + what); }

bool on_device(const Range& range) {
  if (cuda().options().at_once) return true;  // memory that both sides reach
  const auto* const region = cuda().memory().find(range.at);
  return region != nullptr && region->on_device() && region->holds(range.at, range.bytes);
}

bool check(const std::array<Range, 4>& ranges) {
  bool good = true;
  const auto expect = [&](bool holds, const std::string& what) {
    if (!holds) report(what);
    good = good && holds;
  };
  for (const Range& range : ranges) {
    expect(reinterpret_cast<uintptr_t>(range.at) % range.alignment == 0,
           std::string("with ") + range.name + " less aligned than it was asked for");
    expect(on_device(range), std::string("with ") + range.name + " outside of the GPU's memory");
    for (const Range& other : ranges) {
      const bool written = &range == &ranges[2] || &range == &ranges[3];
      expect(&range == &other || !written || !range.meets(other),
             std::string("with ") + range.name + " over " + other.name);
    }
  }
  return good;
}

}  // namespace

size_t cublasLtGetVersion() { return 130000; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "another";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) {
  if (cuda().begin("cublasLtCreate") != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  return make(made, cublasLtContext{});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t library) { return destroy(library); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t computes,
                                        cudaDataType scale) {
  if (computes != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  return make(made, SimulatedProduct{});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return destroy(product); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  cublasOperation_t operation;
  if (name != CUBLASLT_MATMUL_DESC_TRANSA || bytes != sizeof operation) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&operation, value, bytes);
  product->transposes_a = operation == CUBLAS_OP_T;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  return make(made, SimulatedLayout{type, rows, columns, static_cast<uint64_t>(stride)});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return make(made, SimulatedPreference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  const bool is_workspace = name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (is_workspace ? sizeof(uint64_t) : sizeof(uint32_t))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  void* const to = is_workspace ? static_cast<void*>(&preference->workspace_bytes)
                                : &preference->alignments[static_cast<size_t>(
                                      name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)];
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t library,
                                              cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  library->used = true;
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (cuda().begin("cublasLtMatmulAlgoGetHeuristic") != cudaSuccess) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (!fits(*product, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (preference->workspace_bytes < kWorkspaceBytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm algorithm = algorithm_for(*a, *b, *d);
  algorithm.alignments = preference->alignments;
  results[0] = {.algo = {},
                .workspaceSize = kWorkspaceBytes,
                .state = CUBLAS_STATUS_SUCCESS,
                .wavesCount = 1,
                .reserved = {}};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t library, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  library->used = true;
  if (cuda().begin("cublasLtMatmul") != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  float scales[2];
  std::memcpy(&scales[0], alpha, sizeof(float));
  std::memcpy(&scales[1], beta, sizeof(float));
  Algorithm chosen;
  std::memcpy(&chosen, algo, sizeof chosen);
  Algorithm expected = algorithm_for(*a_layout, *b_layout, *d_layout);
  expected.alignments = chosen.alignments;
  if (!fits(*product, *a_layout, *b_layout, *c_layout, *d_layout) || scales[0] != 1 ||
      scales[1] != 0 || c != d || std::memcmp(&chosen, &expected, sizeof chosen) != 0) {
    report("of another shape than its algorithm is for");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (workspace_bytes < chosen.workspace_bytes) {
    report("in too small a workspace");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::array<Range, 4> ranges{{{"A", a, a_layout->bytes(), chosen.alignments[0]},
                                     {"B", b, b_layout->bytes(), chosen.alignments[1]},
                                     {"D", d, d_layout->bytes(), chosen.alignments[3]},
                                     {"its workspace", workspace, workspace_bytes, 16}}};
  if (!check(ranges)) return CUBLAS_STATUS_INVALID_VALUE;
  const Operands operands{*a_layout,
                          *b_layout,
                          *d_layout,
                          static_cast<const uint16_t*>(a),
                          static_cast<const uint16_t*>(b),
                          static_cast<float*>(d),
                          static_cast<std::byte*>(workspace)};
  const auto run = [operands, ranges] {
    // With a thread a stream the regions are another thread's.
    const bool there = cuda().options().threads ||
                       std::all_of(ranges.begin(), ranges.end(),
                                   [](const Range& range) { return on_device(range); });
    if (!there) return report("runs over memory that was freed");
    multiply(operands);
  };
  return cuda().launch(stream, run) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                   : CUBLAS_STATUS_EXECUTION_FAILED;
}

namespace spillway::kernels::cuda {

// The simulated library is there always; that the real one may not be is load_blas_calls_from()'s.
Result<BlasCalls> load_blas_calls() {
  return BlasCalls{.get_version = cublasLtGetVersion,
                   .status_name = cublasLtGetStatusName,
                   .create = cublasLtCreate,
                   .destroy = cublasLtDestroy,
                   .product_create = cublasLtMatmulDescCreate,
                   .product_destroy = cublasLtMatmulDescDestroy,
                   .product_set = cublasLtMatmulDescSetAttribute,
                   .layout_create = cublasLtMatrixLayoutCreate,
                   .layout_destroy = cublasLtMatrixLayoutDestroy,
                   .preference_create = cublasLtMatmulPreferenceCreate,
                   .preference_destroy = cublasLtMatmulPreferenceDestroy,
                   .preference_set = cublasLtMatmulPreferenceSetAttribute,
                   .choose = cublasLtMatmulAlgoGetHeuristic,
                   .multiply = cublasLtMatmul};
}

}  // namespace spillway::kernels::cuda
