#include "model/largest_step.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/block_until_done.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

// Two steps at most are under way at once (gpu_transformer.h), each with buffers of its own.
constexpr int kStepsUnderWay = 2;

// A page of each group, in which all tables end.
struct OnePage {
  std::vector<kernels::DeviceMemory> memory;         // (group)
  std::vector<std::byte*> base;                      // (group)
  std::vector<std::vector<kernels::PageId>> tables;  // (group): as long as the context takes
};

Result<OnePage> make_page(const RunnerShape& shape, kernels::Device& device, uint32_t tokens) {
  OnePage page;
  for (const kernels::KvGroupLayout& group : shape.groups) {
    auto memory = device.allocate(group.page_bytes());
    if (!memory) return memory.error();
    page.base.push_back(memory->data);
    page.memory.push_back(*std::move(memory));
    page.tables.emplace_back((tokens + group.page_tokens - 1) / group.page_tokens,
                             kernels::PageId{0});
  }
  return page;
}

void add_sequence(StepBatch& batch, const RunnerShape& shape, const OnePage& page,
                  std::span<const TokenId> tokens, uint32_t position, const SamplingParams& drawn) {
  SequenceStep& sequence = batch.sequences.emplace_back();
  sequence.tokens = tokens;
  sequence.position = position;
  const auto end = position + static_cast<uint32_t>(tokens.size());
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    const uint32_t page_tokens = shape.groups[g].page_tokens;
    sequence.tables.push_back(
        std::span(page.tables[g]).first((end + page_tokens - 1) / page_tokens));
  }
  SampleRequest& request = sequence.samples.emplace_back();
  request.row = static_cast<uint32_t>(tokens.size()) - 1;
  request.params = &drawn;
  request.want_logprob = true;
}

}  // namespace

Result<> run_largest_step(Runner& runner, kernels::Device& device, const LargestStep& step) {
  CHECK(step.sequences > 0);
  CHECK(step.sequences <= step.rows);
  CHECK(step.rows <= runner.batch_tokens_max());
  const RunnerShape& shape = runner.shape();
  const auto page = make_page(shape, device, step.context_tokens);
  if (!page) return page.error();
  runner.bind_pages(page->base);
  // The first has what rows the others leave, from its begin on, where they cost least; the others
  // are at the end of their context, most of them with one row.
  const std::vector<TokenId> tokens(std::min(step.rows, step.context_tokens), TokenId{0});
  const SamplingParams drawn;
  StepBatch batch;
  uint32_t left = step.rows;
  for (uint32_t s = 0; s < step.sequences; ++s) {
    const uint32_t others = step.sequences - s - 1;
    const uint32_t rows = std::min(left - others, step.context_tokens);
    left -= rows;
    add_sequence(batch, shape, *page, std::span(tokens).first(rows),
                 s == 0 ? 0 : step.context_tokens - rows, drawn);
  }
  for (int i = 0; i < kStepsUnderWay; ++i) {
    StepResult result;
    runner.enqueue(batch, result);
    const auto done = device.make_event();
    device.compute().record(*done);
    kernels::block_until_done(*done);
    runner.collect(batch, result);
    if (!result.failure.empty()) return Error{ErrorCode::kResourceExhausted, result.failure};
  }
  return {};
}

}  // namespace spillway::model
