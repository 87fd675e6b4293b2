#include "model/spm_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <limits>

#include "model/utf8.h"
#include "model/word_cache.h"

namespace spillway::model {
namespace {

constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581
constexpr uint32_t kNobody = UINT32_MAX;
constexpr uint32_t kInvalid = 0x110000;  // the "code point" of bytes that are not UTF-8

std::string unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (;;) {
    const size_t found = text.find(kEscapedSpace, at);
    if (found == text.npos) break;
    out.append(text.substr(at, found - at));
    out.push_back(' ');
    at = found + kEscapedSpace.size();
  }
  out.append(text.substr(at));
  return out;
}

struct Character {
  uint32_t code_point;
  uint32_t bytes;
};

Character character_at(std::string_view text, size_t at) {
  const Utf8Step step = read_utf8(text, at);
  if (step.kind != Utf8Kind::kValid) return {kInvalid, 1};
  return {step.code_point, step.bytes};
}

// Runs of spaces become one, those at the text's ends go.
std::string single_spaced(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

struct SpmEncoder::Symbol {
  uint32_t begin;  // in the segment
  uint32_t bytes;  // 0: merged into the one before
  uint32_t previous;
  uint32_t next;
};

// Two neighbours that may merge, as they were when it was queued.
struct SpmEncoder::Pair {
  float score;
  uint32_t left;
  uint32_t bytes;  // of both

  bool operator<(const Pair& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

struct SpmEncoder::Work {
  explicit Work(size_t text_bytes) : cache(text_bytes) {}

  WordCache cache;
  std::deque<std::string> changed;  // what the cache's words lie in; they stay in place
  std::vector<Symbol> symbols;
  std::vector<Pair> heap;
};

Result<SpmEncoder> SpmEncoder::create(const TokenizerData& data, const Vocabulary& vocabulary) {
  if (data.scores.empty()) {
    return Error{ErrorCode::kCorrupt,
                 "tokenizer.ggml.scores is missing; a \"llama\" tokenizer needs it"};
  }
  return SpmEncoder(data, vocabulary);
}

SpmEncoder::SpmEncoder(const TokenizerData& data, const Vocabulary& vocabulary)
    : adds_space_prefix_(data.adds_space_prefix.value_or(true)),
      removes_extra_whitespace_(data.removes_extra_whitespace.value_or(false)),
      index_(vocabulary.size()),
      scores_(data.scores),
      neighbours_(std::bit_ceil(vocabulary.size() / 4 + 1)),
      unknown_(vocabulary.if_plain(data.unknown)) {
  for (float& score : scores_) {
    if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
  }
  index_tokens(data, vocabulary);
  const uint32_t replacement = index_.find(kReplacementText);
  replacement_ = replacement != StringIndex::kAbsent ? static_cast<TokenId>(replacement) : unknown_;
}

std::optional<std::string> SpmEncoder::decode(std::string_view text) { return unescape(text); }

void SpmEncoder::index_tokens(const TokenizerData& data, const Vocabulary& vocabulary) {
  byte_token_.fill(-1);
  for (uint32_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId token = static_cast<TokenId>(i);
    const std::string_view bytes = vocabulary.bytes(token);
    if (vocabulary.type(token) == TokenType::kByte) {
      byte_token_[static_cast<uint8_t>(bytes[0])] = token;
    }
    if (vocabulary.type(token) != TokenType::kNormal || data.tokens[i].empty()) continue;
    if (index_.insert(bytes, i) != i) continue;
    token_bytes_max_ = std::max(token_bytes_max_, bytes.size());
    note_neighbours(bytes);
  }
}

// 16 bits for each token: in Gemma's 262,144, one in a hundred is set.
size_t SpmEncoder::neighbour_bit(uint32_t left, uint32_t right) const {
  return mix_hash(static_cast<uint64_t>(left) << 32 | right) & (64 * neighbours_.size() - 1);
}

void SpmEncoder::note_neighbours(std::string_view token) {
  Character left = character_at(token, 0);
  for (size_t at = left.bytes; at < token.size();) {
    const Character right = character_at(token, at);
    const size_t bit = neighbour_bit(left.code_point, right.code_point);
    neighbours_[bit / 64] |= uint64_t{1} << (bit % 64);
    at += right.bytes;
    left = right;
  }
}

// False: no token holds these two characters next to each other, so none ever spans this place and
// the text can be cut here without changing what it becomes.
bool SpmEncoder::may_join(uint32_t left, uint32_t right) const {
  const size_t bit = neighbour_bit(left, right);
  return (neighbours_[bit / 64] >> (bit % 64) & 1) != 0;
}

bool SpmEncoder::needs_change(const TextPart& part) const {
  return removes_extra_whitespace_ || (adds_space_prefix_ && part.after_special) ||
         part.text.find(kEscapedSpace) != part.text.npos;
}

std::string SpmEncoder::changed(const TextPart& part) const {
  std::string out = unescape(part.text);
  if (removes_extra_whitespace_) out = single_spaced(out);
  if (adds_space_prefix_ && part.after_special) out.insert(0, 1, ' ');
  return out;
}

void SpmEncoder::encode(std::span<const TextPart> parts, std::vector<TokenId>& tokens) const {
  Work work(text_bytes(parts));
  for (const TextPart& part : parts) {
    if (part.token >= 0) {
      tokens.push_back(part.token);
    } else if (needs_change(part)) {
      encode_text(work.changed.emplace_back(changed(part)), work, tokens);
    } else {
      encode_text(part.text, work, tokens);
    }
  }
}

// Cuts the text where no token can span, and merges within the segments.
void SpmEncoder::encode_text(std::string_view text, Work& work,
                             std::vector<TokenId>& tokens) const {
  size_t begin = 0;
  while (begin < text.size()) {
    Character left = character_at(text, begin);
    size_t end = begin + left.bytes;
    while (end < text.size()) {
      const Character right = character_at(text, end);
      if (!may_join(left.code_point, right.code_point)) break;
      end += right.bytes;
      left = right;
    }
    work.cache.append(text.substr(begin, end - begin), tokens,
                      [&](std::string_view segment) { encode_segment(segment, work, tokens); });
    begin = end;
  }
}

void SpmEncoder::encode_segment(std::string_view segment, Work& work,
                                std::vector<TokenId>& tokens) const {
  work.symbols.clear();
  work.heap.clear();
  for (size_t at = 0; at < segment.size();) {
    const uint32_t bytes = character_at(segment, at).bytes;
    const uint32_t i = static_cast<uint32_t>(work.symbols.size());
    const bool last = at + bytes == segment.size();
    work.symbols.push_back(
        {static_cast<uint32_t>(at), bytes, i == 0 ? kNobody : i - 1, last ? kNobody : i + 1});
    if (i > 0) push_pair(segment, work, i - 1, i);
    at += bytes;
  }
  merge_symbols(segment, work);
  for (uint32_t i = 0; i != kNobody; i = work.symbols[i].next) {
    append_symbol(segment.substr(work.symbols[i].begin, work.symbols[i].bytes), tokens);
  }
}

void SpmEncoder::push_pair(std::string_view segment, Work& work, uint32_t left,
                           uint32_t right) const {
  const uint32_t bytes = work.symbols[left].bytes + work.symbols[right].bytes;
  if (bytes > token_bytes_max_) return;
  const uint32_t token = index_.find(segment.substr(work.symbols[left].begin, bytes));
  if (token == StringIndex::kAbsent) return;
  work.heap.push_back({scores_[token], left, bytes});
  std::push_heap(work.heap.begin(), work.heap.end());
}

void SpmEncoder::merge_symbols(std::string_view segment, Work& work) const {
  std::vector<Symbol>& symbols = work.symbols;
  while (!work.heap.empty()) {
    std::pop_heap(work.heap.begin(), work.heap.end());
    const Pair pair = work.heap.back();
    work.heap.pop_back();
    const uint32_t left = pair.left;
    const uint32_t right = symbols[left].next;
    // One of the two has merged since.
    if (symbols[left].bytes == 0 || right == kNobody) continue;
    if (symbols[left].bytes + symbols[right].bytes != pair.bytes) continue;
    symbols[left].bytes = pair.bytes;
    symbols[left].next = symbols[right].next;
    symbols[right].bytes = 0;
    if (symbols[left].previous != kNobody) {
      push_pair(segment, work, symbols[left].previous, left);
    }
    if (symbols[left].next != kNobody) {
      symbols[symbols[left].next].previous = left;
      push_pair(segment, work, left, symbols[left].next);
    }
  }
}

void SpmEncoder::append_symbol(std::string_view bytes, std::vector<TokenId>& tokens) const {
  const uint32_t token = index_.find(bytes);
  if (token != StringIndex::kAbsent) {
    tokens.push_back(static_cast<TokenId>(token));
    return;
  }
  const bool has_bytes = std::all_of(bytes.begin(), bytes.end(), [this](char byte) {
    return byte_token_[static_cast<uint8_t>(byte)] >= 0;
  });
  if (has_bytes) {
    for (const char byte : bytes) tokens.push_back(byte_token_[static_cast<uint8_t>(byte)]);
    return;
  }
  const bool invalid = bytes.size() == 1 && static_cast<uint8_t>(bytes[0]) >= 0x80;
  const TokenId fallback = invalid ? replacement_ : unknown_;
  if (fallback >= 0) tokens.push_back(fallback);
}

}  // namespace spillway::model
