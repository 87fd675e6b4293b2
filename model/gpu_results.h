// What a step brings down from a GPU into pinned memory, and how tokens are made of it: of a row
// that the device draws from (device_sampling.h) the token, and what its log-probability is made
// of; of all others the logits, from which the CPU's sampler draws with every parameter.
//
// Bound: there is room for so many whole rows as reserve() is told, 0.5 MB each at 128k tokens.
// Where a step wants more of them (a prompt's most likely tokens, for every row) it alone
// allocates.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/device.h"
#include "model/gpu_tile.h"
#include "model/runner.h"
#include "model/sampler.h"
#include "runtime/result.h"

namespace spillway::model {

// Engine thread. One step at a time.
class GpuResults {
 public:
  explicit GpuResults(const LogitsShape& shape) : shape_(shape) {}

  // Once, before the first step: room for every step of so many rows, cut into tiles of so many, of
  // which no more than `whole_rows` are whole. Fails where there is too little memory.
  Result<> reserve(kernels::Device& device, uint32_t rows, uint32_t tile_rows, uint32_t whole_rows);
  // Sets the tiles' places. Fails where there is no memory for more whole rows. REQUIRES: no copy
  // to it is in flight.
  Result<> prepare(kernels::Device& device, std::span<GpuTile> tiles);
  // Where the chunk of a tile's places from `first` on comes to.
  std::byte* chunk(const GpuTile& tile, uint32_t first) {
    return memory_.data + tile.results_at + shape_.offset(tile, first);
  }
  // Fills in the samples. REQUIRES: the step is done.
  void draw(const StepBatch& batch, std::span<const GpuTile> tiles, StepResult& result);

 private:
  Result<> allocate(kernels::Device& device, size_t bytes);
  SampleResult drawn(const SampleRequest& request, const std::byte* chunk, uint32_t row) const;

  const LogitsShape shape_;
  kernels::DeviceMemory memory_;
  SampleScratch scratch_;
};

}  // namespace spillway::model
