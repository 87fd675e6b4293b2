// Tokens of one choice to text that may be sent: holds back split code points (case A1) and any
// suffix that may be the start of a stop string (case A2). What it holds is bounded by the longest
// stop string plus three bytes. One owner, no suspension.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/stop_matcher.h"
#include "model/tokenizer.h"

namespace spillway::model {

struct TextStreamOptions {
  bool include_stop_string = false;
  bool show_control = false;
  // The tokens begin a text (nothing but control tokens came before). Then the stream's text is
  // what decode() gives, without the space that encode() put in front. Else it goes on a text, and
  // is the tokens' pieces one after the other.
  bool at_text_start = false;
};

class TextStream {
 public:
  // `tokenizer` must outlive this. Stop strings are byte strings, none empty.
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
             bool include_stop_string = false, bool show_control = false)
      : TextStream(tokenizer, stop_strings,
                   TextStreamOptions{include_stop_string, show_control, false}) {}
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
             TextStreamOptions options);

  struct Piece {
    std::string text;  // may be sent now; whole code points, invalid bytes as U+FFFD
    // Set once a stop string is complete: its index. Text from it on is dropped. Of several, the
    // one that is complete first counts, however the bytes are spread over tokens.
    std::optional<size_t> stop;
  };
  // With `may_stop` false (min_tokens is not reached) stop strings that end in this token are
  // passed over: their text is plain text from then on. REQUIRES: no earlier call has reported a
  // stop; flush() was not called.
  Piece push(TokenId token, bool may_stop = true);
  // The end of generation: releases what was held back for a stop string; an incomplete code point
  // becomes U+FFFD. "" after a stop.
  std::string flush();

 private:
  std::string release(size_t bytes, bool at_end);

  const Tokenizer* tokenizer_;
  StopMatcher matcher_;
  StopMatcher::State state_ = StopMatcher::kStart;
  TextStreamOptions options_;
  std::vector<size_t> stop_bytes_;  // lengths of the stop strings
  bool drop_space_;                 // the next byte, if a space, is the one encode() added
  bool ended_ = false;
  std::string held_;
};

}  // namespace spillway::model
