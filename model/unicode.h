// The classes of code points that pre-tokenizers tell apart (Unicode 15.1). Any thread.
#pragma once

#include <cstdint>

namespace spillway::model {

// The values are those of tools/gen_unicode_table.
enum class CodePointClass : uint8_t {
  kOther,        // C but for spaces: controls, formats, unassigned
  kUpper,        // Lu
  kLower,        // Ll
  kTitle,        // Lt
  kModifier,     // Lm
  kOtherLetter,  // Lo
  kMark,         // M
  kNumber,       // N
  kPunctuation,  // P
  kSymbol,       // S
  kSpace,        // White_Space, \s of the patterns
};

// A set of classes: one bit each.
using ClassSet = uint16_t;

constexpr ClassSet class_bit(CodePointClass kind) {
  return static_cast<ClassSet>(1u << static_cast<unsigned>(kind));
}
template <class... Kinds>
constexpr ClassSet class_set(Kinds... kinds) {
  return static_cast<ClassSet>((0u | ... | class_bit(kinds)));
}

inline constexpr ClassSet kLetters =
    class_set(CodePointClass::kUpper, CodePointClass::kLower, CodePointClass::kTitle,
              CodePointClass::kModifier, CodePointClass::kOtherLetter);
inline constexpr ClassSet kMarks = class_set(CodePointClass::kMark);
inline constexpr ClassSet kNumbers = class_set(CodePointClass::kNumber);
inline constexpr ClassSet kPunctuations = class_set(CodePointClass::kPunctuation);
inline constexpr ClassSet kSymbols = class_set(CodePointClass::kSymbol);
inline constexpr ClassSet kSpaces = class_set(CodePointClass::kSpace);

// kOther for what is past U+10FFFF. One load from a table of 1 MiB that the first call fills.
CodePointClass code_point_class(uint32_t code_point);

}  // namespace spillway::model
