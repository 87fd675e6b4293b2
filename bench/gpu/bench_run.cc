#include "bench/gpu/bench_run.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/block_until_done.h"

namespace spillway::bench {

using kernels::DeviceMemory;
using kernels::Stream;

BenchSizes tiny_sizes() {
  BenchSizes sizes;
  sizes.repeats = 2;
  sizes.warm_ups = 1;
  sizes.copy_bytes = sizes.transfer_bytes = 64 << 10;
  sizes.page_bytes = {4096, 8192};
  sizes.heads = 2, sizes.kv_heads = 1, sizes.head_dim = 16;
  sizes.decode_tokens = {16, 48};
  sizes.decode_tokens_together = 96;
  sizes.prefill_rows = {20};
  sizes.outputs = 35, sizes.inputs = 256;
  sizes.matrix_bytes = 1 << 14;
  sizes.matmul_rows = {1, 20};
  sizes.model = {.layers = 2,
                 .embedding = 64,
                 .feed_forward = 96,
                 .heads = 4,
                 .kv_heads = 2,
                 .vocabulary = 96,
                 .context = 256};
  sizes.served = {.prefix_tokens = 64,
                  .suffix_tokens = 16,
                  .restores = 4,
                  .streams = {1, 2},
                  .decoded_tokens = 4,
                  .nvme_bytes = uint64_t{16} << 20};
  return sizes;
}

Result<> BenchRun::finish(Stream& stream) {
  const auto event = device_.make_event();
  stream.record(*event);
  block_until_done(*event);
  if (device_.failure() != nullptr) return *device_.failure();
  return Result<>();
}

Result<DeviceMemory> BenchRun::upload_bytes(std::span<const std::byte> bytes) {
  auto there = device_.allocate(std::max<size_t>(bytes.size(), 1));
  if (!there) return there;
  const auto here = device_.allocate_host(std::max<size_t>(bytes.size(), 1));
  if (!here) return here;
  std::memcpy(here->data, bytes.data(), bytes.size());
  device_.copy_in().copy(there->data, here->data, bytes.size());
  if (const auto done = finish(device_.copy_in()); !done) return done.error();
  return there;
}

Result<DeviceMemory> BenchRun::random_memory(size_t bytes) {
  constexpr size_t kPatternBytes = 16 << 20;
  auto there = device_.allocate(bytes);
  if (!there) return there;
  const size_t pattern = std::min(bytes, kPatternBytes);
  const auto here = device_.allocate_host(pattern);
  if (!here) return here;
  std::mt19937_64 random(bytes);
  for (size_t at = 0; at + sizeof(uint64_t) <= pattern; at += sizeof(uint64_t)) {
    // No exponent of a bf16 is that of an infinity or NaN, nor far from that of 1.
    const uint64_t word = (random() & 0x83ff83ff83ff83ffu) | 0x3c003c003c003c00u;
    std::memcpy(here->data + at, &word, sizeof word);
  }
  for (size_t at = 0; at < bytes; at += pattern) {
    device_.copy_in().copy(there->data + at, here->data, std::min(pattern, bytes - at));
  }
  if (const auto done = finish(device_.copy_in()); !done) return done.error();
  return there;
}

Result<std::vector<double>> BenchRun::times(Stream& stream, const std::function<void()>& work) {
  for (uint32_t i = 0; i < sizes_.warm_ups; ++i) work();
  if (const auto done = finish(stream); !done) return done.error();
  std::vector<double> seconds;
  for (uint32_t i = 0; i < sizes_.repeats; ++i) {
    stream.launch([&](kernels::Team&) { stopwatch_.start(device_.native(stream)); });
    work();
    stream.launch([&](kernels::Team&) { stopwatch_.stop(device_.native(stream)); });
    const double taken = stopwatch_.seconds();
    if (taken < 0) return Error{ErrorCode::kIo, "CUDA could not tell how long something took"};
    seconds.push_back(taken);
  }
  if (const auto done = finish(stream); !done) return done.error();
  return seconds;
}

Result<> BenchRun::measure(const Figure& figure, Stream& stream,
                           const std::function<void()>& work) {
  auto seconds = times(stream, work);
  if (!seconds) return seconds.error();
  recorder_.add(figure, *std::move(seconds));
  return Result<>();
}

}  // namespace spillway::bench
