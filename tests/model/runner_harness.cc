#include "tests/model/runner_harness.h"

#include <cstdio>

#include "runtime/check.h"

namespace spillway::model {

RunnerHarness::RunnerHarness(const GgufFile& file, const HarnessOptions& options)
    : RunnerHarness(
          [&, this](kernels::Device& device) { return make_transformer(file, device, options); },
          options) {}

std::unique_ptr<Runner> RunnerHarness::make_transformer(const GgufFile& file,
                                                        kernels::Device& device,
                                                        const HarnessOptions& options) {
  const TransformerOptions wanted{.level = options.level,
                                  .kv_type = options.kv_type,
                                  .page_tokens = options.page_tokens,
                                  .batch_tokens_max = 8192,
                                  .tile_rows = options.tile_rows,
                                  .threads = options.threads};
  const auto take = [](auto made) -> std::unique_ptr<Runner> {
    if (!made) std::fprintf(stderr, "%s\n", made.error().message.c_str());
    CHECK(made);
    return *std::move(made);
  };
  if (options.division.ranks() == 1) return take(Transformer::create(file, device, wanted));
  std::vector<kernels::Device*> devices = {&device};
  while (devices.size() < options.division.ranks()) {
    other_devices_.push_back(std::make_unique<TestDevice>(options.threads));
    devices.push_back(other_devices_.back().get());
  }
  return take(DividedTransformer::create(file, devices, options.division, wanted));
}

RunnerHarness::RunnerHarness(const Make& make, const HarnessOptions& options)
    : by_layers_(options.by_layers),
      abandon_at_(options.abandon_at),
      keep_behind_windows_(options.keep_behind_windows),
      device_(options.threads),
      runner_(make(device_)) {
  std::vector<std::byte*> bases;
  for (const kernels::KvGroupLayout& group : runner_->shape().groups) {
    memory_.push_back(*device_.allocate(group.page_bytes() * options.pages));
    bases.push_back(memory_.back().data);
    auto& pages = free_.emplace_back();
    // Neighbours in a table are no neighbours in memory, and no group's table is another's.
    const auto first = static_cast<uint32_t>(5 + 3 * free_.size());
    for (uint32_t i = 0; i < options.pages; ++i) {
      pages.push_back(kernels::PageId{(i * 29 + first) % options.pages});
      poison(free_.size() - 1, pages.back());
    }
  }
  CHECK(options.pages % 29 != 0);
  runner_->bind_pages(bases);
}

std::byte* RunnerHarness::page(size_t group, kernels::PageId page) const {
  const size_t bytes = runner_->shape().groups[group].page_bytes();
  return memory_[group].data + static_cast<size_t>(page) * bytes;
}

void RunnerHarness::poison(size_t group, kernels::PageId page) {
  const size_t bytes = runner_->shape().groups[group].page_bytes();
  std::memset(this->page(group, page), 0xff, bytes);  // NaN
}

HarnessSequence RunnerHarness::new_sequence() {
  return {.tables = std::vector<std::vector<kernels::PageId>>(memory_.size()), .position = 0};
}

HarnessSequence RunnerHarness::adopt(const RunnerHarness& from, const HarnessSequence& sequence) {
  HarnessSequence own = new_sequence();
  grow(own, sequence.position);
  for (size_t g = 0; g < memory_.size(); ++g) {
    const size_t bytes = runner_->shape().groups[g].page_bytes();
    for (size_t i = 0; i < sequence.tables[g].size(); ++i) {
      std::memcpy(page(g, own.tables[g][i]), from.page(g, sequence.tables[g][i]), bytes);
    }
  }
  own.position = sequence.position;
  return own;
}

void RunnerHarness::release(HarnessSequence& sequence) {
  for (size_t g = 0; g < memory_.size(); ++g) {
    for (kernels::PageId page : sequence.tables[g]) {
      if (page == kernels::kNoPage) continue;
      poison(g, page);
      free_[g].push_back(page);
    }
  }
  sequence = new_sequence();
}

std::vector<std::byte> RunnerHarness::pages_of(const HarnessSequence& sequence,
                                               size_t group) const {
  const size_t bytes = runner_->shape().groups[group].page_bytes();
  std::vector<std::byte> out;
  for (const kernels::PageId page : sequence.tables[group]) {
    if (page == kernels::kNoPage) continue;
    const std::byte* at = this->page(group, page);
    out.insert(out.end(), at, at + bytes);
  }
  return out;
}

void RunnerHarness::grow(HarnessSequence& sequence, uint32_t tokens) {
  for (size_t g = 0; g < memory_.size(); ++g) {
    const uint32_t page_tokens = runner_->shape().groups[g].page_tokens;
    while (sequence.tables[g].size() * page_tokens < sequence.position + tokens) {
      CHECK(!free_[g].empty());
      sequence.tables[g].push_back(free_[g].back());
      free_[g].pop_back();
    }
  }
}

void RunnerHarness::release_behind_window(HarnessSequence& sequence) {
  for (size_t g = 0; g < memory_.size(); ++g) {
    const kernels::KvGroupLayout& group = runner_->shape().groups[g];
    if (group.window == 0 || keep_behind_windows_) continue;
    for (size_t i = 0; i < sequence.tables[g].size(); ++i) {
      // The next token, at `position`, sees tokens above position - window.
      const bool unseen = (i + 1) * group.page_tokens + group.window <= sequence.position + 1;
      if (!unseen || sequence.tables[g][i] == kernels::kNoPage) continue;
      poison(g, sequence.tables[g][i]);
      free_[g].push_back(sequence.tables[g][i]);
      sequence.tables[g][i] = kernels::kNoPage;
    }
  }
}

StepResult RunnerHarness::step(std::vector<HarnessPart> parts, bool stamped) {
  return collect(enqueue(std::move(parts), stamped));
}

std::unique_ptr<HarnessStep> RunnerHarness::enqueue(std::vector<HarnessPart> parts, bool stamped) {
  auto made = std::make_unique<HarnessStep>();
  StepBatch& batch = made->batch;
  batch.stamped = stamped;
  for (HarnessPart& part : parts) {
    grow(*part.sequence, static_cast<uint32_t>(part.tokens.size()));
    made->tables.push_back(part.sequence->tables);
    SequenceStep& step = batch.sequences.emplace_back();
    step.tokens = part.tokens;
    step.position = part.sequence->position;
    for (const auto& table : made->tables.back()) step.tables.push_back(table);
    step.samples = part.samples;
  }
  if (by_layers_) {
    enqueue_by_layers(*made);
  } else {
    runner_->enqueue(batch, made->result);
  }
  for (HarnessPart& part : parts) {
    part.sequence->position += static_cast<uint32_t>(part.tokens.size());
    release_behind_window(*part.sequence);
  }
  return made;
}

StepResult RunnerHarness::collect(std::unique_ptr<HarnessStep> step) {
  runner_->collect(step->batch, step->result);
  return std::move(step->result);
}

void RunnerHarness::enqueue_by_layers(HarnessStep& made) {
  struct Held {
    std::byte* at;
    std::vector<std::byte> bytes;
  };
  StepBatch& batch = made.batch;
  std::vector<std::vector<Held>> held(memory_.size());
  std::vector<std::unique_ptr<kernels::Gate>>& gates = made.gates;
  for (size_t g = 0; g < memory_.size(); ++g) {
    gates.push_back(device_.make_gate());
    batch.layers_there.push_back(gates.back().get());
    const kernels::KvGroupLayout& layout = runner_->shape().groups[g];
    for (const SequenceStep& step : batch.sequences) {
      for (size_t i = 0; i * layout.page_tokens < step.position; ++i) {
        const kernels::PageId page = step.tables[g][i];
        if (page == kernels::kNoPage) continue;
        std::byte* at = memory_[g].data + static_cast<size_t>(page) * layout.page_bytes();
        held[g].push_back({at, {at, at + layout.page_bytes()}});
        poison(g, page);
      }
    }
  }
  uint32_t waits = 0;
  device_.compute().on_wait = [&](const kernels::Gate& gate, uint32_t level) {
    if (waits++ == abandon_at_) {
      for (const auto& each : gates) each->abandon();
    }
    if (gate.abandoned()) return;
    size_t g = 0;
    while (gates[g].get() != &gate) ++g;
    const size_t bytes = runner_->shape().groups[g].layer_bytes();
    for (const Held& page : held[g]) {
      std::memcpy(page.at + (level - 1) * bytes, page.bytes.data() + (level - 1) * bytes, bytes);
    }
  };
  runner_->enqueue(batch, made.result);
  while (runner_->enqueue_rest()) {
  }
}

SampleRequest RunnerHarness::whole_row(uint32_t row) const {
  SampleRequest request;
  request.row = row;
  request.top_logprobs = vocabulary();
  return request;
}

std::vector<float> RunnerHarness::row_of(const SampleResult& result) const {
  CHECK(result.top.size() == vocabulary());
  std::vector<float> row(vocabulary());
  for (const TokenLogprob& entry : result.top)
    row[static_cast<size_t>(entry.token)] = entry.logprob;
  return row;
}

std::vector<float> RunnerHarness::log_probabilities(std::span<const TokenId> tokens,
                                                    std::vector<uint32_t> chunks) {
  HarnessSequence sequence = new_sequence();
  std::vector<float> rows;
  for (size_t at = 0, index = 0; at < tokens.size(); ++index) {
    const size_t size = chunks[std::min(index, chunks.size() - 1)];
    const auto part = tokens.subspan(at, std::min(size, tokens.size() - at));
    std::vector<SampleRequest> samples;
    for (uint32_t r = 0; r < part.size(); ++r) samples.push_back(whole_row(r));
    const StepResult result = step({{&sequence, part, samples}});
    for (const SampleResult& sample : result.samples[0]) {
      const std::vector<float> row = row_of(sample);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    at += part.size();
  }
  release(sequence);
  return rows;
}

}  // namespace spillway::model
