// A tokenizer without text, for benches that ask the engine by token ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace spillway::bench {

class NoText final : public model::Tokenizer {
 public:
  explicit NoText(uint32_t vocabulary) : vocabulary_(vocabulary) {}

  std::vector<model::TokenId> encode(std::string_view, model::EncodeOptions) const override {
    return {};
  }
  std::string_view piece(model::TokenId, bool) const override { return {}; }
  std::string decode(const std::vector<model::TokenId>&, bool) const override { return {}; }
  uint32_t vocabulary() const override { return vocabulary_; }
  model::TokenId bos() const override { return -1; }
  model::TokenId eos() const override { return 0; }
  bool adds_bos() const override { return false; }
  bool ends_generation(model::TokenId) const override { return false; }
  const std::vector<model::TokenId>& end_tokens() const override { return none_; }
  bool is_control(model::TokenId) const override { return false; }

 private:
  const uint32_t vocabulary_;
  std::vector<model::TokenId> none_;
};

}  // namespace spillway::bench
