// Tokens of one choice to text that may be sent: holds back split code points (case A1) and any
// suffix that may be the start of a stop string (case A2).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer.h"

namespace spillway::model {

class TextStream {
 public:
  // `tokenizer` must outlive this. Stop strings are byte strings, none empty.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
             bool include_stop_string = false, bool show_control = false);

  struct Piece {
    std::string text;  // may be sent now; whole code points
    // Set once a stop string is complete: its index. Text from it on is dropped.
    std::optional<size_t> stop;
  };
  // With `may_stop` false (min_tokens is not reached) stop strings that end in this token are passed
  // over: their text is plain text from then on.
  Piece push(TokenId token, bool may_stop = true);
  // The end of generation: releases what was held back for a stop string; an incomplete code point
  // becomes U+FFFD.
  std::string flush();

 private:
  std::string release(bool at_end);

  const Tokenizer* tokenizer_;
  std::vector<std::string> stop_strings_;
  bool include_stop_string_;
  bool show_control_;
  std::string held_;
};

}  // namespace spillway::model
