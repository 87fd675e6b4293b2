#include "model/pretokenizer.h"

#include "model/gguf.h"

namespace spillway::model {
namespace {

struct Named {
  std::string_view name;
  PrePattern pattern;
  bool ignores_merges = false;
  bool adds_bos = false;
};

// The names that converters write, and which of them mean the same.
constexpr Named kNamed[] = {
    {"default", PrePattern::kDefault},
    {"gpt-2", PrePattern::kGpt2},
    {"phi-2", PrePattern::kGpt2},
    {"mpt", PrePattern::kGpt2},
    {"olmo", PrePattern::kGpt2},
    {"jais", PrePattern::kGpt2},
    {"gigachat", PrePattern::kGpt2},
    {"a.x-4.0", PrePattern::kGpt2},
    {"mellum", PrePattern::kGpt2},
    {"exaone4", PrePattern::kGpt2},
    {"trillion", PrePattern::kGpt2},
    {"granite-docling", PrePattern::kGpt2},
    {"smollm", PrePattern::kDigitsGpt2},
    {"starcoder", PrePattern::kDigitsGpt2},
    {"refact", PrePattern::kDigitsGpt2},
    {"command-r", PrePattern::kDigitsGpt2},
    {"codeshell", PrePattern::kDigitsGpt2},
    {"exaone", PrePattern::kDigitsGpt2},
    {"minerva-7b", PrePattern::kDigitsGpt2},
    {"mellum2", PrePattern::kDigitsGpt2},
    {"falcon", PrePattern::kFalcon},
    {"llama-bpe", PrePattern::kLlama3, true, true},
    {"llama3", PrePattern::kLlama3, true, true},
    {"llama-v3", PrePattern::kLlama3, true, true},
    {"falcon3", PrePattern::kLlama3, true, true},
    {"falcon-h1", PrePattern::kLlama3, true, true},
    {"pixtral", PrePattern::kLlama3, true, true},
    {"midm-2.0", PrePattern::kLlama3, true, true},
    {"lfm2", PrePattern::kLlama3, true, true},
    {"dbrx", PrePattern::kLlama3},
    {"smaug-bpe", PrePattern::kLlama3},
    {"chatglm-bpe", PrePattern::kLlama3},
    {"glm4", PrePattern::kLlama3, true},
    {"qwen2", PrePattern::kQwen2},
    {"deepseek-r1-qwen", PrePattern::kQwen2},
    {"kormo", PrePattern::kQwen2},
    {"megrez", PrePattern::kQwen2},
    {"stablelm2", PrePattern::kQwen2},
    {"hunyuan", PrePattern::kQwen2},
    {"solar-open", PrePattern::kQwen2},
    {"grok-2", PrePattern::kQwen2},
    {"qwen35", PrePattern::kQwen35},
    {"seed-coder", PrePattern::kSeedCoder},
    {"tekken", PrePattern::kTekken, true, true},
    {"gpt-4o", PrePattern::kGpt4o},
    {"llama4", PrePattern::kGpt4o},
    {"kanana2", PrePattern::kGpt4o},
    {"minimax-m2", PrePattern::kGpt4o},
    {"deepseek-llm", PrePattern::kDeepseekLlm},
    {"deepseek-coder", PrePattern::kDeepseekCoder},
    {"deepseek-v3", PrePattern::kDeepseekV3},
    {"hunyuan-dense", PrePattern::kDeepseekV3},
    {"joyai-llm", PrePattern::kDeepseekV3},
};

}  // namespace

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  if (name.empty()) name = "default";
  std::string known;
  for (const Named& named : kNamed) {
    if (named.name == name) {
      return Pretokenizer(named.pattern, named.ignores_merges, named.adds_bos);
    }
    known += known.empty() ? "" : ", ";
    known += named.name;
  }
  return Error{ErrorCode::kUnsupported, "tokenizer.ggml.pre is " + in_quotes(name) +
                                            ", an unknown pre-tokenizer; known are " + known};
}

void Pretokenizer::split(std::string_view text, Scratch& scratch,
                         std::vector<size_t>& word_bytes) const {
  read_runes(text, scratch.runes);
  scratch.parts.clear();
  if (!scratch.runes.empty()) scratch.parts.push_back({0, scratch.runes.size()});
  for (const SplitStage stage : stages_of(pattern_)) {
    scratch.pieces.clear();
    for (const RuneRange part : scratch.parts) stage(scratch.runes.data(), part, scratch.pieces);
    scratch.parts.swap(scratch.pieces);
  }
  for (const RuneRange part : scratch.parts) {
    size_t bytes = 0;
    for (size_t i = part.begin; i < part.end; ++i) bytes += scratch.runes[i].bytes();
    word_bytes.push_back(bytes);
  }
}

}  // namespace spillway::model
