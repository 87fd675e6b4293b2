// A text as an array of code points with their classes, for the pre-tokenizers' scanners.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/unicode.h"

namespace spillway::model {

// One code point, or one byte that is not valid UTF-8 (which counts as U+FFFD).
class Rune {
 public:
  Rune(uint32_t code_point, CodePointClass kind, uint8_t bytes)
      : packed_(code_point | static_cast<uint32_t>(kind) << 21 |
                static_cast<uint32_t>(bytes) << 25) {}

  uint32_t code_point() const { return packed_ & 0x1FFFFF; }
  CodePointClass kind() const { return static_cast<CodePointClass>(packed_ >> 21 & 0xF); }
  uint32_t bytes() const { return packed_ >> 25; }  // in the text
  bool in(ClassSet set) const { return (set & class_bit(kind())) != 0; }
  bool is(char32_t c) const { return code_point() == c; }
  bool is_newline() const { return is('\r') || is('\n'); }

 private:
  uint32_t packed_;
};

void read_runes(std::string_view text, std::vector<Rune>& out);

}  // namespace spillway::model
