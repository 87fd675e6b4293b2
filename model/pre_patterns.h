// The regular expressions of pre-tokenizers, as scanners: each takes time linear in the text,
// whatever the text (case A11), where a backtracking engine may not.
//
// Sources: the patterns published in the models' tokenizer.json files and in OpenAI's tiktoken,
// quoted at each scanner in pre_patterns.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/runes.h"

namespace spillway::model {

// A part of a text as [begin, end) of its runes.
struct RuneRange {
  size_t begin;
  size_t end;
};

// Splits one part: appends its pieces in order, none empty, to `out`. What a pattern matches is a
// piece, and so is what lies between two matches. Lookaheads see the part's end as the text's end.
using SplitStage = void (*)(const Rune* runes, RuneRange part, std::vector<RuneRange>& out);

// The stages of a pattern family, applied one after the other, each to the pieces of the one
// before.
enum class PrePattern : uint8_t {
  kDefault,
  kGpt2,
  kDigitsGpt2,  // each digit alone, then GPT-2
  kFalcon,
  kLlama3,
  kQwen2,
  kQwen35,
  kSeedCoder,
  kTekken,
  kGpt4o,
  kDeepseekLlm,
  kDeepseekCoder,
  kDeepseekV3,
};
std::span<const SplitStage> stages_of(PrePattern pattern);

}  // namespace spillway::model
