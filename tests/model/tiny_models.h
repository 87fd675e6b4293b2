// The small random models of tests/data/tiny (made by make_tiny_models.py, which computes the
// logits they must give with NumPy).
#pragma once

#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/token.h"
#include "runtime/check.h"

namespace spillway::model {

inline const std::vector<std::string> kTinyModels = {
    "gemma3_soft_caps",   "llama_mha_linear", "llama_mqa_llama3", "llama_odd_sizes",
    "llama_partial_rope", "llama_q4_1",       "llama_q5_0",       "mistral_window",
    "qwen2_bias_yarn",    "qwen2_q8_0",       "qwen3_qk_norm"};

inline bool is_quantized(const std::string& tiny_model) {
  return tiny_model.find("_q") != std::string::npos && tiny_model != "qwen3_qk_norm";
}

struct TinyModel {
  explicit TinyModel(const std::string& name)
      : file(GgufFile::open("tests/data/tiny/" + name + ".gguf").value()),
        logits(file.get_floats("spillway.test.logits").value()) {
    const auto ids = file.get_ints("spillway.test.tokens").value();
    tokens.assign(ids.begin(), ids.end());
  }

  GgufFile file;
  std::vector<float> logits;  // (token, vocabulary)
  std::vector<TokenId> tokens;
};

}  // namespace spillway::model
