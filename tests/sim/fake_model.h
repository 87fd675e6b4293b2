// A model without arithmetic for the simulation. A token's KV bytes in each layer are a chain value
// over all tokens up to it, so they name (tokens, position, layer); the next token follows from the
// chain, the seed and the choice. Every page that a step may read is checked against the tokens it
// should hold, each layer when the step comes to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/runner.h"
#include "model/tokenizer.h"

namespace spillway::sim {

// 24 tokens: 0 ends the generation, i is the letter 'a' + i - 1.
class FakeTokenizer final : public model::Tokenizer {
 public:
  static constexpr uint32_t kVocabulary = 24;

  FakeTokenizer();
  std::vector<model::TokenId> encode(std::string_view text,
                                     model::EncodeOptions options) const override;
  std::string_view piece(model::TokenId token, bool show_control) const override;
  std::string decode(const std::vector<model::TokenId>& tokens, bool show_control) const override;
  uint32_t vocabulary() const override { return kVocabulary; }
  model::TokenId bos() const override { return -1; }
  model::TokenId eos() const override { return 0; }
  bool adds_bos() const override { return false; }
  bool ends_generation(model::TokenId token) const override { return token == 0; }
  const std::vector<model::TokenId>& end_tokens() const override { return end_tokens_; }
  bool is_control(model::TokenId token) const override { return token == 0; }

 private:
  std::vector<model::TokenId> end_tokens_ = {0};
  std::vector<std::string> pieces_;
};

uint64_t chain_next(uint64_t chain, model::TokenId token);
// The token that follows a sequence whose chain is `chain`; none of `banned`.
model::TokenId fake_draw(uint64_t chain, uint64_t seed, uint32_t choice,
                         std::span<const model::TokenId> banned);

class FakeRunner final : public model::Runner {
 public:
  // One full-attention group, and one with a window if `window` is not 0. A page takes 2 KiB for
  // each layer, and at least 4.
  FakeRunner(kernels::Device& device, uint32_t window, uint32_t context_tokens_max,
             uint32_t layers = 1);

  const model::RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*> base) override { base_ = std::move(base); }
  uint32_t batch_tokens_max() const override { return 4096; }
  uint32_t rows_together_max() const override { return batch_tokens_max(); }
  void enqueue(const model::StepBatch& batch, model::StepResult& result) override;
  void collect(const model::StepBatch& batch, model::StepResult& result) override;

  static constexpr const char* kFailure = "the simulated device failed";
  uint64_t fails_every = 0;  // the last of so many steps; 0: none
  // The step that was enqueued and has not run to its end; null for none.
  const model::StepBatch* enqueued() const { return enqueued_; }
  uint32_t launches() const { return launches_; }  // of that step, or the last
  uint64_t rows() const { return rows_; }          // computed so far
  uint64_t checked() const { return checked_; }    // tokens whose KV was compared
  uint64_t wrong() const { return wrong_; }        // of these, different

 private:
  struct Place {
    uint32_t group, layer;
  };
  void run_layer(const model::StepBatch& batch, Place place);
  void finish(const model::StepBatch& batch, model::StepResult& result);
  std::byte* slot(Place place, std::span<const kernels::PageId> table, uint32_t position) const;
  size_t token_bytes(uint32_t group) const;  // of one layer
  void write(Place place, std::span<const kernels::PageId> table, uint32_t position,
             uint64_t chain);
  void check(const model::SequenceStep& step, Place place);

  kernels::Device& device_;
  model::RunnerShape shape_;
  std::vector<std::byte*> base_;
  const model::StepBatch* enqueued_ = nullptr;
  const model::StepBatch* to_collect_ = nullptr;
  uint64_t collected_ = 0;
  uint32_t launches_ = 1;
  std::vector<std::vector<uint64_t>> row_chains_;  // of the step that runs: (sequence, row)
  uint64_t step_wrong_ = 0;  // of the step that runs, or has run and was not collected
  uint64_t rows_ = 0, checked_ = 0, wrong_ = 0;
};

}  // namespace spillway::sim
