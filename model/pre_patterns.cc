#include "model/pre_patterns.h"

#include <algorithm>
#include <string_view>

#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr ClassSet kUpperSide =  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
    class_set(CodePointClass::kUpper, CodePointClass::kTitle, CodePointClass::kModifier,
              CodePointClass::kOtherLetter, CodePointClass::kMark);
constexpr ClassSet kLowerSide =  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
    class_set(CodePointClass::kLower, CodePointClass::kModifier, CodePointClass::kOtherLetter,
              CodePointClass::kMark);
constexpr size_t kUnlimited = SIZE_MAX;

// Pieces of a part by a matcher: match(i) gives the end of a match that begins at rune i, or i.
template <class Match>
void split_by(RuneRange part, std::vector<RuneRange>& out, Match match) {
  size_t gap = part.begin;
  size_t i = part.begin;
  while (i < part.end) {
    const size_t end = match(i);
    if (end == i) {
      ++i;
      continue;
    }
    if (gap < i) out.push_back({gap, i});
    out.push_back({i, end});
    gap = i = end;
  }
  if (gap < part.end) out.push_back({gap, part.end});
}

// What the matchers of one part share. Each function looks at rune `i` and gives the end of what
// it matches there, `i` for no match.
class Scanner {
 public:
  Scanner(const Rune* runes, size_t end) : runes_(runes), end_(end) {}

  const Rune& operator[](size_t i) const { return runes_[i]; }
  bool has(size_t i) const { return i < end_; }
  bool has(size_t i, ClassSet set) const { return i < end_ && runes_[i].in(set); }

  // [set]{0,limit}
  size_t run(size_t i, ClassSet set, size_t limit = kUnlimited) const {
    const size_t stop = end_ - i <= limit ? end_ : i + limit;
    while (i < stop && runes_[i].in(set)) ++i;
    return i;
  }

  template <class Predicate>
  size_t run_while(size_t i, Predicate predicate) const {
    while (i < end_ && predicate(runes_[i])) ++i;
    return i;
  }

  // 's|'t|'re|'ve|'m|'ll|'d
  size_t contraction(size_t i, bool any_case) const {
    if (!has(i) || !runes_[i].is('\'')) return i;
    const char32_t first = letter(i + 1, any_case);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    const char32_t second = letter(i + 2, any_case);
    const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
    return two ? i + 3 : i;
  }

  // \s+(?!\S)|\s+
  size_t spaces(size_t i) const {
    const size_t end = run(i, kSpaces);
    return end == end_ || end - i < 2 ? end : end - 1;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  size_t newlines_or_spaces(size_t i) const {
    const size_t end = run(i, kSpaces);
    for (size_t last = end; last > i; --last) {
      if (runes_[last - 1].is_newline()) return last;
    }
    return end == end_ || end - i < 2 ? end : end - 1;
  }

 private:
  // The letter in lower case; U+017F folds to s as the patterns' (?i: does it.
  char32_t letter(size_t i, bool any_case) const {
    if (!has(i)) return 0;
    const char32_t c = runes_[i].code_point();
    if (!any_case) return c;
    if (c == 0x17F) return 's';
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  }

  const Rune* runes_;
  size_t end_;
};

// GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
void split_gpt2(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  constexpr ClassSet kRest = static_cast<ClassSet>(~(kLetters | kNumbers | kSpaces));
  split_by(part, out, [&](size_t i) {
    if (const size_t end = at.contraction(i, false); end != i) return end;
    const size_t word = i + (at[i].is(' ') ? 1 : 0);
    for (const ClassSet set : {kLetters, kNumbers, kRest}) {
      if (at.has(word, set)) return at.run(word, set);
    }
    return at.spaces(i);
  });
}

// What tells the patterns of Llama 3's kind apart.
struct WordRules {
  bool contractions = true;
  ClassSet word = kLetters;
  size_t digits_max = kUnlimited;
  bool newlines_after_symbols = true;
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,digits_max}|
//  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// with WORD = \p{L} or [\p{L}\p{M}]; the fourth branch leaves out the marks that WORD takes.
template <WordRules kRules>
void split_words(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  constexpr ClassSet kNoPrefix = kLetters | kNumbers;
  constexpr ClassSet kSymbolRun =
      static_cast<ClassSet>(~(kSpaces | kLetters | kNumbers | kRules.word));
  split_by(part, out, [&](size_t i) {
    if (kRules.contractions) {
      if (const size_t end = at.contraction(i, true); end != i) return end;
    }
    if (!at[i].in(kNoPrefix) && !at[i].is_newline() && at.has(i + 1, kRules.word)) {
      return at.run(i + 1, kRules.word);
    }
    if (at[i].in(kRules.word)) return at.run(i, kRules.word);
    if (at[i].in(kNumbers)) return at.run(i, kNumbers, kRules.digits_max);
    const size_t symbols = i + (at[i].is(' ') ? 1 : 0);
    if (at.has(symbols, kSymbolRun)) {
      if (!kRules.newlines_after_symbols) return at.run(symbols, kSymbolRun);
      return at.run_while(at.run(symbols, kSymbolRun),
                          [](const Rune& rune) { return rune.is_newline(); });
    }
    return at.newlines_or_spaces(i);
  });
}

// U*W+ from `i` with U the upper side and W the lower side, which share Lm, Lo and M: a greedy
// match with backtracking ends either behind the run of W that follows the whole run of U, or
// behind the last rune of that run that is also in W.
size_t upper_then_lower(const Scanner& at, size_t i) {
  const size_t uppers = at.run(i, kUpperSide);
  if (at.has(uppers, kLowerSide)) return at.run(uppers, kLowerSide);
  for (size_t end = uppers; end > i; --end) {
    if (at[end - 1].in(kLowerSide)) return end;
  }
  return i;
}

// U+W*, tried where U*W+ does not match.
size_t upper_only(const Scanner& at, size_t i) { return at.run(i, kUpperSide); }

// A word by change of case, with one rune before it that is no letter, digit or newline.
size_t cased_word(const Scanner& at, size_t i) {
  const bool prefix = !at[i].in(kLetters | kNumbers) && !at[i].is_newline();
  for (const auto branch : {upper_then_lower, upper_only}) {
    if (prefix) {
      if (const size_t end = branch(at, i + 1); end != i + 1) return end;
    }
    if (const size_t end = branch(at, i); end != i) return end;
  }
  return i;
}

// [^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
// GPT-4o's adds (?i:'s|'t|'re|'ve|'m|'ll|'d)? to the first two branches and takes \p{N}{1,3}.
template <bool kContractions, size_t kDigitsMax>
void split_cased(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  constexpr ClassSet kSymbolRun = static_cast<ClassSet>(~(kSpaces | kLetters | kNumbers));
  split_by(part, out, [&](size_t i) {
    if (const size_t end = cased_word(at, i); end != i) {
      return kContractions ? at.contraction(end, true) : end;
    }
    if (at[i].in(kNumbers)) return at.run(i, kNumbers, kDigitsMax);
    const size_t symbols = i + (at[i].is(' ') ? 1 : 0);
    if (at.has(symbols, kSymbolRun)) {
      return at.run_while(at.run(symbols, kSymbolRun),
                          [](const Rune& rune) { return rune.is_newline() || rune.is('/'); });
    }
    return at.newlines_or_spaces(i);
  });
}

// [set]{1,limit}
template <ClassSet kSet, size_t kLimit>
void split_runs(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  split_by(part, out, [&](size_t i) { return at.run(i, kSet, kLimit); });
}

// [0-9][0-9][0-9]
void split_three_digits(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  const auto digit = [&](size_t i) {
    return at.has(i) && at[i].code_point() >= '0' && at[i].code_point() <= '9';
  };
  split_by(part, out,
           [&](size_t i) { return digit(i) && digit(i + 1) && digit(i + 2) ? i + 3 : i; });
}

// [\p{P}\$\+<=>\^~\|]+, and the back quote where kBackQuote
template <bool kBackQuote>
void split_punctuation(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  split_by(part, out, [&](size_t i) {
    return at.run_while(i, [](const Rune& rune) {
      constexpr std::u32string_view kAlso = U"$+<=>^~|";
      return rune.in(kPunctuations) || kAlso.find(rune.code_point()) != kAlso.npos ||
             (kBackQuote && rune.is('`'));
    });
  });
}

// [\r\n]
void split_newlines(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  split_by(part, out, [&](size_t i) { return runes[i].is_newline() ? i + 1 : i; });
}

struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

bool in_ranges(std::span<const CodePointRange> ranges, uint32_t code_point) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

// The letters of DeepSeek LLM's pattern: those with case, as it lists them.
constexpr CodePointRange kDeepseekLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x376},     {0x377, 0x377},
    {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
    {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},
    {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},
    {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},
    {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},
    {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},
    {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},
    {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},
    {0x2184, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},
    {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},
    {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},
    {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
    {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
constexpr CodePointRange kDeepseekPunctuation[] = {
    {0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
    {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};
constexpr CodePointRange kDeepseekEast[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr CodePointRange kDeepseekV3East[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};

// \s?[ranges]+
void split_range_words(const Rune* runes, RuneRange part, std::vector<RuneRange>& out,
                       std::span<const CodePointRange> ranges) {
  const Scanner at(runes, part.end);
  const auto inside = [&](const Rune& rune) { return in_ranges(ranges, rune.code_point()); };
  split_by(part, out, [&](size_t i) {
    const size_t begin = i + (at[i].in(kSpaces) ? 1 : 0);
    const size_t end = at.run_while(begin, inside);
    if (end != begin) return end;
    return at.run_while(i, inside);  // U+3000 is both a space and in the punctuation's ranges
  });
}
void split_deepseek_letters(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  split_range_words(runes, part, out, kDeepseekLetters);
}
void split_deepseek_punctuation(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  split_range_words(runes, part, out, kDeepseekPunctuation);
}

// \s?[set]+
template <ClassSet kSet>
void split_spaced(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  split_by(part, out, [&](size_t i) {
    const size_t begin = i + (at[i].in(kSpaces) ? 1 : 0);
    const size_t end = at.run(begin, kSet);
    return end == begin ? i : end;
  });
}

// \s+$
void split_last_spaces(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  size_t begin = part.end;
  while (begin > part.begin && runes[begin - 1].in(kSpaces)) --begin;
  split_by(part, out, [&](size_t i) { return i == begin ? part.end : i; });
}

void split_range_runs(const Rune* runes, RuneRange part, std::vector<RuneRange>& out,
                      std::span<const CodePointRange> ranges) {
  const Scanner at(runes, part.end);
  split_by(part, out, [&](size_t i) {
    return at.run_while(i, [&](const Rune& rune) { return in_ranges(ranges, rune.code_point()); });
  });
}
void split_deepseek_east(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  split_range_runs(runes, part, out, kDeepseekEast);
}
void split_deepseek_v3_east(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  split_range_runs(runes, part, out, kDeepseekV3East);
}

bool ascii_letter(const Rune& rune) {
  const uint32_t lower = rune.code_point() | 0x20;
  return lower >= 'a' && lower <= 'z';
}

bool ascii_punctuation(const Rune& rune) {
  const uint32_t c = rune.code_point();
  return c > 0x20 && c < 0x7F && !ascii_letter(rune) && !(c >= '0' && c <= '9');
}

// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
void split_deepseek_v3(const Rune* runes, RuneRange part, std::vector<RuneRange>& out) {
  const Scanner at(runes, part.end);
  constexpr ClassSet kWord = kLetters | kMarks;
  constexpr ClassSet kSigns = kPunctuations | kSymbols;
  split_by(part, out, [&](size_t i) {
    if (ascii_punctuation(at[i])) {
      if (const size_t end = at.run_while(i + 1, ascii_letter); end != i + 1) return end;
    }
    if (!at[i].in(kLetters | kSigns) && !at[i].is_newline() && at.has(i + 1, kWord)) {
      return at.run(i + 1, kWord);
    }
    if (at[i].in(kWord)) return at.run(i, kWord);
    const size_t signs = i + (at[i].is(' ') ? 1 : 0);
    if (at.has(signs, kSigns)) {
      return at.run_while(at.run(signs, kSigns),
                          [](const Rune& rune) { return rune.is_newline(); });
    }
    return at.newlines_or_spaces(i);
  });
}

constexpr WordRules kLlama3Rules{.digits_max = 3};
constexpr WordRules kQwen2Rules{.digits_max = 1};
constexpr WordRules kQwen35Rules{.word = kLetters | kMarks, .digits_max = 1};

// (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+
constexpr WordRules kSeedCoderRules{.digits_max = 1, .newlines_after_symbols = false};

constexpr SplitStage kDefaultStages[] = {split_punctuation<false>, split_gpt2,
                                         split_runs<kNumbers, kUnlimited>, split_three_digits};
constexpr SplitStage kGpt2Stages[] = {split_gpt2};
constexpr SplitStage kDigitsGpt2Stages[] = {split_runs<kNumbers, 1>, split_gpt2};
constexpr SplitStage kFalconStages[] = {split_punctuation<true>, split_gpt2, split_three_digits};
constexpr SplitStage kLlama3Stages[] = {split_words<kLlama3Rules>};
constexpr SplitStage kQwen2Stages[] = {split_words<kQwen2Rules>};
constexpr SplitStage kQwen35Stages[] = {split_words<kQwen35Rules>};
constexpr SplitStage kSeedCoderStages[] = {split_words<kSeedCoderRules>};
constexpr SplitStage kTekkenStages[] = {split_cased<false, 1>};
constexpr SplitStage kGpt4oStages[] = {split_cased<true, 3>};
constexpr SplitStage kDeepseekLlmStages[] = {
    split_newlines,    split_deepseek_letters, split_deepseek_punctuation,
    split_last_spaces, split_deepseek_east,    split_runs<kNumbers, kUnlimited>};
constexpr SplitStage kDeepseekCoderStages[] = {split_newlines, split_spaced<kLetters>,
                                               split_spaced<kPunctuations>, split_deepseek_east,
                                               split_runs<kNumbers, 1>};
constexpr SplitStage kDeepseekV3Stages[] = {split_runs<kNumbers, 3>, split_deepseek_v3_east,
                                            split_deepseek_v3};

}  // namespace

std::span<const SplitStage> stages_of(PrePattern pattern) {
  switch (pattern) {
    case PrePattern::kDefault:
      return kDefaultStages;
    case PrePattern::kGpt2:
      return kGpt2Stages;
    case PrePattern::kDigitsGpt2:
      return kDigitsGpt2Stages;
    case PrePattern::kFalcon:
      return kFalconStages;
    case PrePattern::kLlama3:
      return kLlama3Stages;
    case PrePattern::kQwen2:
      return kQwen2Stages;
    case PrePattern::kQwen35:
      return kQwen35Stages;
    case PrePattern::kSeedCoder:
      return kSeedCoderStages;
    case PrePattern::kTekken:
      return kTekkenStages;
    case PrePattern::kGpt4o:
      return kGpt4oStages;
    case PrePattern::kDeepseekLlm:
      return kDeepseekLlmStages;
    case PrePattern::kDeepseekCoder:
      return kDeepseekCoderStages;
    case PrePattern::kDeepseekV3:
      return kDeepseekV3Stages;
  }
  CHECK(false);
  return {};
}

}  // namespace spillway::model
