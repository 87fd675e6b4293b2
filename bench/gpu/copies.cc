// Copies: what device memory and the link to the host give, and what is left of that where pages
// lie scattered on both sides.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "bench/gpu/bench_run.h"

namespace spillway::bench {
namespace {

using kernels::DeviceMemory;

// Page i of one side goes to page order[i] of the other.
struct PageSwap {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  size_t page_bytes = 0;
  std::vector<uint32_t> order;
};

void swap_in(kernels::Stream& stream, const PageSwap& swap) {
  for (size_t i = 0; i < swap.order.size(); ++i) {
    stream.copy(swap.device + swap.order[i] * swap.page_bytes, swap.host + i * swap.page_bytes,
                swap.page_bytes);
  }
}

void swap_out(kernels::Stream& stream, const PageSwap& swap) {
  for (size_t i = 0; i < swap.order.size(); ++i) {
    stream.copy(swap.host + i * swap.page_bytes, swap.device + swap.order[i] * swap.page_bytes,
                swap.page_bytes);
  }
}

Result<> measure_swaps(BenchRun& run, const DeviceMemory& there, const DeviceMemory& here) {
  for (const size_t page_bytes : run.sizes().page_bytes) {
    PageSwap swap{there.data, here.data, page_bytes, {}};
    swap.order.resize(run.sizes().transfer_bytes / page_bytes);
    std::iota(swap.order.begin(), swap.order.end(), 0u);
    std::shuffle(swap.order.begin(), swap.order.end(), std::mt19937(7));
    const auto bytes = static_cast<double>(swap.order.size() * page_bytes);
    const std::string what = "pages of " + std::to_string(page_bytes >> 10) + " KiB";
    auto& in = run.device().copy_in();
    const Figure in_figure{.name = "swap_in", .what = what, .bytes = bytes};
    auto done = run.measure(in_figure, in, [&] { swap_in(in, swap); });
    if (!done) return done;
    auto& out = run.device().copy_out();
    const Figure out_figure{.name = "swap_out", .what = what, .bytes = bytes};
    done = run.measure(out_figure, out, [&] { swap_out(out, swap); });
    if (!done) return done;
  }
  return Result<>();
}

}  // namespace

Result<> measure_copies(BenchRun& run) {
  {
    const size_t bytes = run.sizes().copy_bytes;
    const auto from = run.random_memory(bytes);
    if (!from) return from.error();
    const auto to = run.device().allocate(bytes);
    if (!to) return to.error();
    auto& stream = run.device().compute();
    const Figure figure{.name = "device_copy",
                        .what = std::to_string(bytes >> 20) + " MiB",
                        .bytes = 2.0 * static_cast<double>(bytes),
                        .in_device = true};
    const auto done =
        run.measure(figure, stream, [&] { stream.copy(to->data, from->data, bytes); });
    if (!done) return done;
  }
  const size_t bytes = run.sizes().transfer_bytes;
  const auto there = run.random_memory(bytes);
  if (!there) return there.error();
  const auto here = run.device().allocate_host(bytes);
  if (!here) return here.error();
  Figure figure{.name = "pinned_up",
                .what = std::to_string(bytes >> 20) + " MiB",
                .bytes = static_cast<double>(bytes)};
  auto& in = run.device().copy_in();
  auto done = run.measure(figure, in, [&] { in.copy(there->data, here->data, bytes); });
  if (!done) return done;
  figure.name = "pinned_down";
  auto& out = run.device().copy_out();
  done = run.measure(figure, out, [&] { out.copy(here->data, there->data, bytes); });
  if (!done) return done;
  return measure_swaps(run, *there, *here);
}

}  // namespace spillway::bench
