#include "model/gpu_results.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spillway::model {

Result<> GpuResults::prepare(kernels::Device& device, std::span<GpuTile> tiles) {
  size_t bytes = 0;
  for (GpuTile& tile : tiles) {
    tile.results_at = bytes;
    bytes += shape_.tile_bytes(tile);
    bytes = (bytes + 15) / 16 * 16;
  }
  if (bytes <= memory_.bytes) return {};
  auto memory = device.allocate_host(std::max(bytes, 2 * memory_.bytes));
  if (!memory) return memory.error();
  memory_ = *std::move(memory);
  return {};
}

void GpuResults::draw(const StepBatch& batch, std::span<const GpuTile> tiles, StepResult& result) {
  for (const GpuTile& tile : tiles) {
    for (const GpuSample& sample : tile.samples) {
      const uint32_t first = sample.place / shape_.chunk_rows * shape_.chunk_rows;
      std::byte* chunk = this->chunk(tile, first);
      const uint32_t row = sample.place - first;
      const SampleRow& wanted = sample.wanted;
      SampleResult& to = result.samples[wanted.sequence][wanted.sample];
      if (sample.place >= tile.whole) {
        uint32_t choice = 0;
        std::memcpy(&choice, chunk + row * sizeof choice, sizeof choice);
        to = {};
        to.token = static_cast<TokenId>(choice);
        continue;
      }
      auto* logits =
          reinterpret_cast<float*>(chunk + shape_.choices_bytes() + row * shape_.row_bytes());
      to = sample_row(std::span(logits, shape_.vocabulary),
                      batch.sequences[wanted.sequence].samples[wanted.sample], wanted.position,
                      scratch_);
    }
  }
}

}  // namespace spillway::model
