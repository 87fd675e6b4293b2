// Tokens drawn on a GPU from rows of logits: what the operator takes, and how to enqueue it. Plain
// types, and what operators.h says of all operators holds here too.
//
// Twin: sample_row() of model/sampler.h, whose header says what is drawn: the same token for every
// row, seed, choice and position. model/device_sampling.h says which requests these settings cover.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace spillway::kernels::cuda {

// One row's settings. None of the floats is NaN.
struct DeviceDraw {
  float inverse_temperature = 1;  // 0: greedy; else at least the least normal float
  uint32_t top_k = 0;             // 0: all
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;  // absolute, of the token drawn
  int32_t scored = -1;    // this token in place of one drawn; -1: draw
  bool reports = false;   // fill the row's DeviceReport
};

// What the token's log-probability is made of: (logit - maximum) - log(weight_sum). The logarithm
// is the host's, for a GPU's may differ in the last bit.
struct DeviceReport {
  double weight_sum = 0;  // of e^(logit - maximum); undefined where the maximum is -infinity
  float logit = 0;        // of the token; NaN is -infinity, +infinity the largest float
  float maximum = 0;      // of the row
  uint32_t rank = 0;      // of the token among all, from 0
};

struct SampleArgs {
  const float* logits = nullptr;  // (row, n), rows `stride` floats apart
  size_t stride = 0;
  uint32_t rows = 0;                  // at most 65,535
  uint32_t n = 0;                     // at least 1
  const DeviceDraw* draws = nullptr;  // (rows), in device memory
  int32_t* tokens = nullptr;          // (rows)
  DeviceReport* reports = nullptr;    // (rows): those of rows that report; null where none does
  std::byte* scratch = nullptr;       // sample_scratch_bytes(), 16-byte aligned
};

// Logits in a block whose weights are summed by themselves: kSumBlock of model/softmax.h.
inline constexpr uint32_t kWeightBlock = 256;

constexpr uint32_t weight_blocks(uint32_t n) { return (n + kWeightBlock - 1) / kWeightBlock; }

// A row's part of the scratch: (n) candidates twice; sums of blocks twice; maxima of blocks.
constexpr size_t sample_row_scratch_bytes(uint32_t n) {
  const size_t bytes =
      2 * n * sizeof(uint64_t) + weight_blocks(n) * (2 * sizeof(double) + sizeof(float));
  return (bytes + 15) / 16 * 16;
}

// 128k logits take 2.1 MB a row.
constexpr size_t sample_scratch_bytes(uint32_t rows, uint32_t n) {
  return rows * sample_row_scratch_bytes(n);
}

int sample(CUstream_st* stream, const SampleArgs& args);

}  // namespace spillway::kernels::cuda
