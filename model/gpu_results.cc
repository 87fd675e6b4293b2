#include "model/gpu_results.h"

#include <cstring>
#include <utility>

#include "model/device_sampling.h"

namespace spillway::model {

namespace {

constexpr size_t kAlignment = 16;  // of a tile's results

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Result<> GpuResults::reserve(kernels::Device& device, uint32_t rows, uint32_t tile_rows,
                             uint32_t whole_rows) {
  const size_t tiles = (size_t{rows} + tile_rows - 1) / tile_rows;
  const size_t chunks = rows / shape_.chunk_rows + tiles;  // the last of a tile may be any rows
  return allocate(
      device, chunks * shape_.drawn_bytes() + whole_rows * shape_.row_bytes() + tiles * kAlignment);
}

Result<> GpuResults::allocate(kernels::Device& device, size_t bytes) {
  auto memory = device.allocate_host(bytes);
  if (!memory) return memory.error();
  memory_ = *std::move(memory);
  return {};
}

Result<> GpuResults::prepare(kernels::Device& device, std::span<GpuTile> tiles) {
  size_t bytes = 0;
  for (GpuTile& tile : tiles) {
    tile.results_at = bytes;
    bytes = aligned(bytes + shape_.tile_bytes(tile));
  }
  return bytes <= memory_.bytes ? Result<>() : allocate(device, bytes);
}

SampleResult GpuResults::drawn(const SampleRequest& request, const std::byte* chunk,
                               uint32_t row) const {
  kernels::cuda::DeviceReport report;
  int32_t token = 0;
  std::memcpy(&report, chunk + row * sizeof report, sizeof report);
  std::memcpy(&token, chunk + shape_.tokens_at() + row * sizeof token, sizeof token);
  return device_result(request, token, report);
}

void GpuResults::draw(const StepBatch& batch, std::span<const GpuTile> tiles, StepResult& result) {
  for (const GpuTile& tile : tiles) {
    for (const GpuSample& sample : tile.samples) {
      const uint32_t first = sample.place / shape_.chunk_rows * shape_.chunk_rows;
      std::byte* chunk = this->chunk(tile, first);
      const uint32_t row = sample.place - first;
      const SampleRow& wanted = sample.wanted;
      SampleResult& to = result.samples[wanted.sequence][wanted.sample];
      const SampleRequest& request = batch.sequences[wanted.sequence].samples[wanted.sample];
      if (sample.place >= tile.whole) {
        to = drawn(request, chunk, row);
        continue;
      }
      auto* logits =
          reinterpret_cast<float*>(chunk + shape_.drawn_bytes() + row * shape_.row_bytes());
      to = sample_row(std::span(logits, shape_.vocabulary), request, wanted.position, scratch_);
    }
  }
}

}  // namespace spillway::model
