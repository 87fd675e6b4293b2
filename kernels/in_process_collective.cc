#include "kernels/in_process_collective.h"

#include <algorithm>
#include <utility>

#include "kernels/share.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kChunk = 256;  // floats summed at a time, in registers and the nearest cache

// Elements [first, end), at most kChunk.
void sum_chunk(std::span<float* const> buffers, size_t first, size_t end) {
  float sum[kChunk];
  const size_t count = end - first;
  std::copy_n(buffers.front() + first, count, sum);
  for (const float* buffer : buffers.subspan(1)) {
    for (size_t i = 0; i < count; ++i) sum[i] += buffer[first + i];
  }
  for (float* buffer : buffers) std::copy_n(sum, count, buffer + first);
}

}  // namespace

InProcessCollective::InProcessCollective(std::vector<Device*> devices)
    : devices_(std::move(devices)) {
  CHECK(!devices_.empty());
  for (Device* device : devices_) events_.emplace_back(*device);
}

void InProcessCollective::meet() {
  if (devices_.size() == 1) return;
  for (size_t from = 0; from < devices_.size(); ++from) {
    const Event& there = events_[from].record();
    for (size_t to = 0; to < devices_.size(); ++to) {
      if (to != from) devices_[to]->compute().wait(there);
    }
  }
}

void InProcessCollective::all_reduce(std::span<float* const> buffers, size_t count) {
  CHECK(buffers.size() == devices_.size());
  if (devices_.size() == 1 || count == 0) return;
  const auto chunks = static_cast<uint32_t>((count + kChunk - 1) / kChunk);
  meet();
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const uint32_t first_chunk = static_cast<uint32_t>(uint64_t{chunks} * rank / ranks());
    const uint32_t end_chunk = static_cast<uint32_t>(uint64_t{chunks} * (rank + 1) / ranks());
    std::vector<float*> all(buffers.begin(), buffers.end());
    devices_[rank]->compute().launch([=, all = std::move(all)](Team& team) {
      const Share share = share_of(team, end_chunk - first_chunk);
      for (uint32_t c = first_chunk + share.first; c < first_chunk + share.end; ++c) {
        const size_t first = size_t{c} * kChunk;
        sum_chunk(all, first, std::min(first + kChunk, count));
      }
    });
  }
  meet();
}

void InProcessCollective::gather(std::span<const RowPart> parts, size_t rows, float* to) {
  CHECK(parts.size() == devices_.size());
  meet();
  std::vector<RowPart> all(parts.begin(), parts.end());
  devices_.front()->compute().launch([rows, to, all = std::move(all)](Team& team) {
    size_t stride = 0;
    for (const RowPart& part : all) stride += part.width;
    const Share share = share_of(team, static_cast<uint32_t>(rows));
    for (size_t row = share.first; row < share.end; ++row) {
      float* at = to + row * stride;
      for (const RowPart& part : all) {
        at = std::copy_n(part.rows + row * part.width, part.width, at);
      }
    }
  });
  meet();
}

}  // namespace spillway::kernels
