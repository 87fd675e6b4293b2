// Reading UTF-8 that may be broken. Invalid bytes come in "maximal subparts" (Unicode 15, 3.9,
// table 3-8): the same pieces that Python's errors="replace" turns into one U+FFFD each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway::model {

enum class Utf8Kind : uint8_t { kValid, kInvalid, kIncomplete };

struct Utf8Step {
  Utf8Kind kind;
  uint8_t bytes;        // consumed; at least 1
  uint32_t code_point;  // U+FFFD unless valid
};

inline constexpr uint32_t kReplacementCodePoint = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

// The step at text[at]. kIncomplete: the text ends within a sequence that is valid so far.
// REQUIRES: at < text.size().
Utf8Step read_utf8(std::string_view text, size_t at);

void append_utf8(std::string& out, uint32_t code_point);

// Appends `text` to `out` with invalid parts replaced; leaves an incomplete end out unless
// `at_end`, where it becomes U+FFFD. Returns how many bytes of `text` were taken.
size_t append_valid_utf8(std::string& out, std::string_view text, bool at_end);

}  // namespace spillway::model
