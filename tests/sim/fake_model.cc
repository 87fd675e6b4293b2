#include "tests/sim/fake_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/check.h"
#include "runtime/prng.h"

namespace spillway::sim {
namespace {

// The 8 bytes at `at` of a token in a layer.
uint64_t value_at(uint64_t chain, uint32_t layer, size_t at) {
  return chain + (uint64_t{layer} << 32) + at;
}

}  // namespace

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
  CHECK(std::exchange(to_collect_, &batch) == nullptr);
  result.failure.clear();
  step_wrong_ = 0;
  kernels::Stream& stream = device_.compute();
  launches_ = 1;
  if (batch.layers_there.empty()) {
    stream.launch([this, &batch, &result](kernels::Team& team) {
      if (team.index() != 0) return;
      for (uint32_t layer = 0; layer < shape_.groups[0].layers; ++layer) {
        for (uint32_t group = 0; group < shape_.groups.size(); ++group) {
          run_layer(batch, {group, layer});
        }
      }
      finish(batch, result);
    });
    return;
  }
  launches_ = shape_.groups[0].layers * static_cast<uint32_t>(shape_.groups.size()) + 1;
  for (uint32_t layer = 0; layer < shape_.groups[0].layers; ++layer) {
    for (uint32_t group = 0; group < shape_.groups.size(); ++group) {
      stream.wait(*batch.layers_there[group], layer + 1);
      stream.launch([this, &batch, group, layer](kernels::Team& team) {
        if (team.index() == 0) run_layer(batch, {group, layer});
      });
    }
  }
  stream.launch([this, &batch, &result](kernels::Team& team) {
    if (team.index() == 0) finish(batch, result);
  });
}

size_t FakeRunner::token_bytes(uint32_t group) const {
  const kernels::KvGroupLayout& layout = shape_.groups[group];
  return layout.layer_bytes() / layout.page_tokens;
}

std::byte* FakeRunner::slot(Place place, std::span<const kernels::PageId> table,
                            uint32_t position) const {
  const kernels::KvGroupLayout& layout = shape_.groups[place.group];
  const kernels::PageId page = table[position / layout.page_tokens];
  CHECK(page != kernels::kNoPage);
  return base_[place.group] + static_cast<size_t>(page) * layout.page_bytes() +
         place.layer * layout.layer_bytes() +
         position % layout.page_tokens * token_bytes(place.group);
}

void FakeRunner::write(Place place, std::span<const kernels::PageId> table, uint32_t position,
                       uint64_t chain) {
  std::byte* to = slot(place, table, position);
  for (size_t i = 0; i < token_bytes(place.group); i += 8) {
    const uint64_t value = value_at(chain, place.layer, i);
    std::memcpy(to + i, &value, 8);
  }
}

// Where a token is drawn all tokens are known: what the pages should hold can be told from them.
void FakeRunner::check(const model::SequenceStep& step, Place place) {
  const auto drawn = std::find_if(step.samples.begin(), step.samples.end(),
                                  [](const auto& wanted) { return wanted.params != nullptr; });
  if (drawn == step.samples.end()) return;
  const uint32_t window = shape_.groups[place.group].window;
  const uint32_t first = window == 0 || step.position + 1 < window ? 0 : step.position + 1 - window;
  uint64_t chain = 0;
  uint32_t at = 0;
  for (const auto& part : {drawn->prompt, drawn->output}) {
    for (model::TokenId token : part) {
      if (at == step.position) return;
      chain = chain_next(chain, token);
      if (at++ < first) continue;
      const std::byte* from = slot(place, step.tables[place.group], at - 1);
      ++checked_;
      for (size_t i = 0; i < token_bytes(place.group); i += 8) {
        uint64_t value = 0;
        std::memcpy(&value, from + i, 8);
        if (value != value_at(chain, place.layer, i)) {
          ++step_wrong_;
          break;
        }
      }
    }
  }
}

void FakeRunner::run_layer(const model::StepBatch& batch, Place place) {
  if (place.layer == 0 && place.group == 0) {
    row_chains_.clear();
    for (const model::SequenceStep& step : batch.sequences) {
      CHECK(!step.tokens.empty());
      rows_ += step.tokens.size();
      // The chain goes on from the token before, as attention would from its KV.
      uint64_t chain = 0;
      if (step.position > 0) {
        std::memcpy(&chain, slot(place, step.tables[0], step.position - 1), 8);
      }
      std::vector<uint64_t>& chains = row_chains_.emplace_back();
      for (const model::TokenId token : step.tokens) {
        chains.push_back(chain = chain_next(chain, token));
      }
    }
  }
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const model::SequenceStep& step = batch.sequences[s];
    check(step, place);
    for (uint32_t row = 0; row < step.tokens.size(); ++row) {
      write(place, step.tables[place.group], step.position + row, row_chains_[s][row]);
    }
  }
}

void FakeRunner::collect(const model::StepBatch& batch, model::StepResult& result) {
  // The step has run, or never will. What a device that ended has read is of no use.
  const bool device_works = device_.failure() == nullptr;
  const bool has_run = std::exchange(enqueued_, nullptr) == nullptr;
  CHECK(has_run || !device_works);
  CHECK(std::exchange(to_collect_, nullptr) == &batch);
  if (device_works) wrong_ += step_wrong_;
  ++collected_;
  if (fails_every == 0 || collected_ % fails_every != 0) return;
  result.samples.clear();
  result.failure = kFailure;
}

void FakeRunner::finish(const model::StepBatch& batch, model::StepResult& result) {
  enqueued_ = nullptr;
  const bool in_vain = std::any_of(batch.layers_there.begin(), batch.layers_there.end(),
                                   [](const auto* gate) { return gate->abandoned(); });
  if (in_vain) step_wrong_ = 0;
  result.samples.clear();
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    std::vector<model::SampleResult> samples;
    for (const model::SampleRequest& wanted : batch.sequences[s].samples) {
      model::SampleResult sample;
      sample.token = wanted.scored;
      if (wanted.params != nullptr) {
        sample.token = fake_draw(row_chains_[s][wanted.row], wanted.params->seed, wanted.choice,
                                 wanted.banned);
      }
      samples.push_back(std::move(sample));
    }
    result.samples.push_back(std::move(samples));
  }
}

}  // namespace spillway::sim
