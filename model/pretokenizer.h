// Splits a text into the words within which byte-level BPE merges, by the pattern that a model file
// names in tokenizer.ggml.pre. Immutable: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/pre_patterns.h"
#include "runtime/result.h"

namespace spillway::model {

class Pretokenizer {
 public:
  // "" means "default". An unknown name is an error that names it and lists what is known.
  static Result<Pretokenizer> create(std::string_view name);

  struct Scratch {
    std::vector<Rune> runes;
    std::vector<RuneRange> parts;
    std::vector<RuneRange> pieces;
  };
  // Appends the length in bytes of each word; they cover the text. Linear in it.
  void split(std::string_view text, Scratch& scratch, std::vector<size_t>& word_bytes) const;

  // Facts about the models of this name: a word that is a token as a whole is not merged anew, and
  // BOS is added where the file does not say.
  bool ignores_merges() const { return ignores_merges_; }
  bool adds_bos() const { return adds_bos_; }

 private:
  Pretokenizer(PrePattern pattern, bool ignores_merges, bool adds_bos)
      : pattern_(pattern), ignores_merges_(ignores_merges), adds_bos_(adds_bos) {}

  PrePattern pattern_;
  bool ignores_merges_;
  bool adds_bos_;
};

}  // namespace spillway::model
