#include "server/cli/measure_device.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/engine_loop.h"
#include "runtime/eventfd_parker.h"

namespace spillway::server {
namespace {

constexpr uint64_t kGroupBytesMax = uint64_t{256} << 20;
constexpr uint32_t kRowsMax = 256;  // of a chunk
constexpr uint32_t kPositionMax = 1u << 15;
constexpr double kChunkSeconds = 0.15;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> times) {
  CHECK(!times.empty());
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Waits for what a stream does.
class Waiter {
 public:
  explicit Waiter(kernels::Device& device) : event_(device.make_event()) {}
  void wait_for(kernels::Stream& stream) {
    stream.record(*event_);
    loop_.run(event_->wait());
  }

 private:
  RealClock clock_;
  EventfdParker parker_;
  EngineLoop loop_{clock_, parker_};
  std::unique_ptr<kernels::Event> event_;
};

class ComputeBench {
 public:
  ComputeBench(model::Transformer& model, kernels::Device& device)
      : model_(model), device_(device), waiter_(device) {
    greedy_.temperature = 0;
    for (uint32_t i = 0; i < kRowsMax; ++i) {
      tokens_.push_back(
          static_cast<model::TokenId>((uint64_t{i} * 7919 + 17) % model.shape().vocabulary));
    }
  }

  Result<> allocate(uint32_t context_tokens) {
    std::vector<std::byte*> bases;
    for (const kernels::KvGroupLayout& group : model_.shape().groups) {
      const uint32_t wanted = (context_tokens + group.page_tokens - 1) / group.page_tokens;
      const auto most = static_cast<uint32_t>(std::max<uint64_t>(
          kGroupBytesMax / group.page_bytes(), kRowsMax / group.page_tokens + 1));
      const uint32_t pages = std::min(wanted, most);
      auto memory = device_.allocate(pages * group.page_bytes());
      if (!memory) return memory.error();
      bases.push_back(memory->data);
      memory_.push_back(std::move(*memory));
      auto& table = tables_.emplace_back();
      for (uint32_t i = 0; i < wanted; ++i) table.push_back(kernels::PageId{i % pages});
    }
    model_.bind_pages(bases);
    return {};
  }

  // Seconds of one step of `rows` tokens from `position` on.
  double step(uint32_t position, uint32_t rows) {
    model::StepBatch batch;
    model::SequenceStep& sequence = batch.sequences.emplace_back();
    sequence.tokens = std::span(tokens_).first(rows);
    sequence.position = position;
    for (size_t g = 0; g < tables_.size(); ++g) {
      const uint32_t page_tokens = model_.shape().groups[g].page_tokens;
      const size_t pages = (position + rows + page_tokens - 1) / page_tokens;
      sequence.tables.push_back(std::span(tables_[g]).first(pages));
    }
    model::SampleRequest& sample = sequence.samples.emplace_back();
    sample.row = rows - 1;
    sample.params = &greedy_;
    const double begin = seconds_now();
    model::StepResult result;
    model_.enqueue(batch, result);
    waiter_.wait_for(device_.compute());
    model_.collect(batch, result);
    return seconds_now() - begin;
  }

 private:
  model::Transformer& model_;
  kernels::Device& device_;
  Waiter waiter_;
  model::SamplingParams greedy_;
  std::vector<model::TokenId> tokens_;
  std::vector<kernels::DeviceMemory> memory_;         // (group)
  std::vector<std::vector<kernels::PageId>> tables_;  // (group)
};

}  // namespace

Result<ComputeFigures> measure_compute(model::Transformer& model, kernels::Device& device,
                                       double seconds) {
  const double begin = seconds_now();
  const uint32_t context = std::min(model.shape().context_tokens_max, kPositionMax + kRowsMax);
  ComputeBench bench(model, device);
  if (const auto allocated = bench.allocate(context); !allocated) return allocated.error();
  ComputeFigures figures;
  // Wakes the team and touches the weights, and says how many rows a chunk may have.
  uint32_t rows = std::min({16u, context, model.batch_tokens_max()});
  bench.step(0, rows);
  const double token_s = bench.step(0, rows) / rows;
  const auto fitting = static_cast<uint32_t>(std::min(kChunkSeconds / token_s, 1e6)) / 16 * 16;
  rows = std::min({std::max(fitting, 16u), kRowsMax, context, model.batch_tokens_max()});

  for (uint32_t position = 0; position + rows <= context;
       position = position == 0 ? 512 : position * 2) {
    if (position > 0 && seconds_now() - begin > seconds * 0.8) break;
    double least = bench.step(position, rows);
    if (least < 2 * kChunkSeconds) least = std::min(least, bench.step(position, rows));
    figures.rate.measured(position, rows, least);
    figures.prefill.push_back({position, rows / least});
  }
  figures.decode_position = std::min(512u, context - 1);
  const double decode_end = seconds_now() + seconds * 0.2;
  std::vector<double> times;
  do {
    times.push_back(bench.step(figures.decode_position, 1));
  } while (seconds_now() < decode_end && times.size() < 64);
  figures.decode_tokens_per_s = 1 / median(std::move(times));
  return figures;
}

CopyFigures measure_copies(kernels::Device& device, std::span<std::byte> memory,
                           uint64_t page_bytes, double seconds) {
  const uint64_t pages = memory.size() / 2 / page_bytes;
  CHECK(pages > 0);
  const auto from = memory.first(pages * page_bytes);
  const auto to = memory.subspan(pages * page_bytes);
  Waiter waiter(device);
  const auto copy_page = [&](uint64_t page) {
    device.copy_out().copy(to.data() + page * page_bytes, from.data() + page * page_bytes,
                           page_bytes);
  };
  std::vector<double> alone;
  for (uint32_t i = 0; i < 31; ++i) {
    const double begin = seconds_now();
    copy_page(i % pages);
    waiter.wait_for(device.copy_out());
    alone.push_back(seconds_now() - begin);
  }
  uint64_t bytes = 0;
  const double begin = seconds_now();
  do {
    for (uint64_t page = 0; page < pages; ++page) copy_page(page);
    waiter.wait_for(device.copy_out());
    bytes += pages * page_bytes;
  } while (seconds_now() < begin + seconds);
  const double took = seconds_now() - begin;
  return {.bytes_per_s = static_cast<double>(bytes) / took, .page_s = median(std::move(alone))};
}

}  // namespace spillway::server
