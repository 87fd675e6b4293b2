#include "model/fingerprint.h"

#include <algorithm>
#include <bit>

namespace spillway::model {
namespace {

// More than a page of 16 tokens; few, since a large model computes them on every start.
constexpr uint32_t kProbeTokens = 20;
constexpr uint32_t kProbeTop = 20;

void add_result(Digest& digest, const SampleResult& result) {
  digest.add(std::bit_cast<uint32_t>(result.logprob));
  for (const TokenLogprob& entry : result.top) {
    digest.add(static_cast<uint64_t>(entry.token));
    digest.add(std::bit_cast<uint32_t>(entry.logprob));
  }
}

}  // namespace

void add_model(Digest& digest, const GgufFile& file) {
  const auto architecture = file.get_string_or("general.architecture", "");
  const std::string prefix = std::string(architecture.value()) + ".";
  digest.add(architecture.value());
  for (const GgufValue& value : file.values()) {
    if (!value.key.starts_with(prefix) && !value.key.starts_with("tokenizer.ggml.")) continue;
    digest.add(value.key);
    digest.add(static_cast<uint64_t>(value.type));
    digest.add(static_cast<uint64_t>(value.element));
    digest.add(value.payload);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    digest.add(tensor.name);
    digest.add(static_cast<uint64_t>(tensor.type));
    for (uint64_t size : tensor.dims) digest.add(size);
    digest.add(tensor.data);
  }
}

void add_layout(Digest& digest, const std::vector<kernels::KvGroupLayout>& groups) {
  for (const kernels::KvGroupLayout& group : groups) {
    for (uint32_t number : {group.layers, group.kv_heads, group.head_dim, group.page_tokens,
                            group.window, static_cast<uint32_t>(group.type)}) {
      digest.add(uint64_t{number});
    }
  }
}

Result<> add_arithmetic(Digest& digest, const RunnerShape& shape, kernels::Device& device,
                        const ProbeStep& run) {
  std::vector<TokenId> tokens(kProbeTokens);
  for (uint32_t i = 0; i < kProbeTokens; ++i) {
    tokens[i] = static_cast<TokenId>((uint64_t{i} * 7919 + 11) % shape.vocabulary);
  }
  StepBatch batch;
  SequenceStep& sequence = batch.sequences.emplace_back();
  sequence.tokens = tokens;
  std::vector<kernels::DeviceMemory> memory;
  std::vector<std::vector<kernels::PageId>> tables;
  std::vector<std::byte*> bases;
  for (const kernels::KvGroupLayout& group : shape.groups) {
    const uint32_t pages = (kProbeTokens + group.page_tokens - 1) / group.page_tokens;
    auto allocated = device.allocate(pages * group.page_bytes());
    if (!allocated) return allocated.error();
    bases.push_back(allocated->data);
    memory.push_back(*std::move(allocated));
    auto& table = tables.emplace_back(pages);
    for (uint32_t p = 0; p < pages; ++p) table[p] = kernels::PageId{p};
  }
  for (const auto& table : tables) sequence.tables.push_back(table);
  SampleRequest& request = sequence.samples.emplace_back();
  request.row = kProbeTokens - 1;
  request.scored = tokens.front();
  request.want_logprob = true;
  request.top_logprobs = std::min(kProbeTop, shape.vocabulary);
  StepResult result;
  result.samples = {std::vector<SampleResult>(1)};
  if (auto done = run(bases, batch, result); !done) return done.error();
  add_result(digest, result.samples[0][0]);
  return {};
}

}  // namespace spillway::model
