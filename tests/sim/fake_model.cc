#include "tests/sim/fake_model.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "runtime/prng.h"

namespace spillway::sim {

FakeTokenizer::FakeTokenizer() {
  pieces_.emplace_back();
  for (uint32_t i = 1; i < kVocabulary; ++i)
    pieces_.emplace_back(1, static_cast<char>('a' + i - 1));
}

std::vector<model::TokenId> FakeTokenizer::encode(std::string_view text,
                                                  model::EncodeOptions) const {
  std::vector<model::TokenId> tokens;
  for (char c : text) tokens.push_back(1 + (c - 'a'));
  return tokens;
}

std::string_view FakeTokenizer::piece(model::TokenId token, bool) const {
  return pieces_[static_cast<size_t>(token)];
}

std::string FakeTokenizer::decode(const std::vector<model::TokenId>& tokens, bool) const {
  std::string text;
  for (model::TokenId token : tokens) text += piece(token, false);
  return text;
}

uint64_t chain_next(uint64_t chain, model::TokenId token) {
  return random_at(chain, 1, static_cast<uint64_t>(token));
}

model::TokenId fake_draw(uint64_t chain, uint64_t seed, uint32_t choice,
                         std::span<const model::TokenId> banned) {
  for (uint64_t attempt = 0;; ++attempt) {
    // An end token once in about a hundred.
    const uint64_t draw = random_at(chain ^ seed, 2 + choice, attempt);
    const auto token = static_cast<model::TokenId>(
        draw % 101 == 0 ? 0 : 1 + (draw >> 8) % (FakeTokenizer::kVocabulary - 1));
    if (std::find(banned.begin(), banned.end(), token) == banned.end()) return token;
  }
}

FakeRunner::FakeRunner(kernels::Device& device, uint32_t window, uint32_t context_tokens_max,
                       uint32_t layers)
    : device_(device) {
  shape_.vocabulary = FakeTokenizer::kVocabulary;
  shape_.context_tokens_max = context_tokens_max;
  shape_.fingerprint = "fake";
  shape_.groups.push_back({.layers = layers, .kv_heads = 1, .head_dim = 32});
  if (window > 0) {
    shape_.groups.push_back({.layers = layers, .kv_heads = 1, .head_dim = 32, .window = window});
  }
}

void FakeRunner::enqueue(const model::StepBatch& batch, model::StepResult& result) {
  enqueued_ = &batch;
  device_.compute().launch([this, &batch, &result](kernels::Team& team) {
    if (team.index() == 0) run(batch, result);
  });
}

std::byte* FakeRunner::slot(uint32_t group, std::span<const kernels::PageId> table,
                            uint32_t position) const {
  const kernels::KvGroupLayout& layout = shape_.groups[group];
  const kernels::PageId page = table[position / layout.page_tokens];
  CHECK(page != kernels::kNoPage);
  return base_[group] + static_cast<size_t>(page) * layout.page_bytes() +
         position % layout.page_tokens * (layout.page_bytes() / layout.page_tokens);
}

void FakeRunner::write(uint32_t group, std::span<const kernels::PageId> table, uint32_t position,
                       uint64_t chain) {
  std::byte* to = slot(group, table, position);
  const kernels::KvGroupLayout& layout = shape_.groups[group];
  for (size_t i = 0; i < layout.page_bytes() / layout.page_tokens; i += 8) {
    const uint64_t value = chain + i;
    std::memcpy(to + i, &value, 8);
  }
}

void FakeRunner::check(const model::SequenceStep& step, std::span<const uint64_t> chains) {
  for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
    const uint32_t window = shape_.groups[g].window;
    const uint32_t first =
        window == 0 || step.position + 1 < window ? 0 : step.position + 1 - window;
    const size_t bytes = shape_.groups[g].page_bytes() / shape_.groups[g].page_tokens;
    for (uint32_t at = first; at < step.position; ++at) {
      const std::byte* from = slot(g, step.tables[g], at);
      ++checked_;
      for (size_t i = 0; i < bytes; i += 8) {
        uint64_t value = 0;
        std::memcpy(&value, from + i, 8);
        if (value != chains[at] + i) {
          ++wrong_;
          break;
        }
      }
    }
  }
}

void FakeRunner::run(const model::StepBatch& batch, model::StepResult& result) {
  enqueued_ = nullptr;
  result.samples.clear();
  for (const model::SequenceStep& step : batch.sequences) {
    CHECK(!step.tokens.empty());
    rows_ += step.tokens.size();
    // The chain goes on from the token before, as attention would from its KV.
    uint64_t chain = 0;
    if (step.position > 0) {
      std::memcpy(&chain, slot(0, step.tables[0], step.position - 1), 8);
    }
    std::vector<uint64_t> row_chains;
    for (uint32_t row = 0; row < step.tokens.size(); ++row) {
      chain = chain_next(chain, step.tokens[row]);
      row_chains.push_back(chain);
      for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
        write(g, step.tables[g], step.position + row, chain);
      }
    }
    std::vector<model::SampleResult> samples;
    for (const model::SampleRequest& wanted : step.samples) {
      model::SampleResult sample;
      sample.token = wanted.scored;
      if (wanted.params != nullptr) {
        // Here all tokens are known: what the pages should hold can be told from them.
        std::vector<uint64_t> chains;
        uint64_t expected = 0;
        for (const auto& part : {wanted.prompt, wanted.output}) {
          for (model::TokenId token : part)
            chains.push_back(expected = chain_next(expected, token));
        }
        check(step, chains);
        sample.token =
            fake_draw(row_chains[wanted.row], wanted.params->seed, wanted.choice, wanted.banned);
      }
      samples.push_back(std::move(sample));
    }
    result.samples.push_back(std::move(samples));
  }
}

}  // namespace spillway::sim
