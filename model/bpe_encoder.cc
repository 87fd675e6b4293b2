#include "model/bpe_encoder.h"

#include <algorithm>

#include "model/byte_alphabet.h"
#include "model/utf8.h"
#include "model/word_cache.h"

namespace spillway::model {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

struct BpeEncoder::Symbol {
  uint32_t id;
  uint32_t previous;
  uint32_t next;
};

// Two neighbours that may merge, as they were when it was queued.
struct BpeEncoder::Pair {
  uint64_t order;  // rank << 32 | place of the left one: the least goes first
  uint32_t left_id;
  uint32_t right_id;
  uint32_t merged_id;

  bool operator<(const Pair& other) const { return order > other.order; }
};

struct BpeEncoder::Work {
  std::vector<Symbol> symbols;
  std::vector<Pair> heap;
};

Result<BpeEncoder> BpeEncoder::create(const TokenizerData& data, const Vocabulary& vocabulary) {
  auto pretokenizer = Pretokenizer::create(data.pretokenizer);
  if (!pretokenizer) return pretokenizer.error();
  if (data.merges.empty()) {
    return Error{ErrorCode::kCorrupt,
                 "tokenizer.ggml.merges is missing or empty; a \"gpt2\" tokenizer needs it"};
  }
  return BpeEncoder(data, vocabulary, *pretokenizer);
}

BpeEncoder::BpeEncoder(const TokenizerData& data, const Vocabulary& vocabulary,
                       Pretokenizer pretokenizer)
    : pretokenizer_(pretokenizer),
      vocabulary_(vocabulary.size()),
      symbols_(vocabulary.size()),
      merges_(data.merges.size()) {
  index_symbols(data, vocabulary);
  index_merges(data);
  // U+FFFD by its bytes, where all of them have tokens.
  for (const char byte : kReplacementText) {
    const uint32_t symbol = byte_symbol_[static_cast<uint8_t>(byte)];
    if (symbol < vocabulary_) replacement_.push_back(static_cast<TokenId>(symbol));
  }
  if (replacement_.size() < kReplacementText.size()) {
    replacement_.clear();
    const TokenId unknown = vocabulary.if_plain(data.unknown);
    if (unknown >= 0) replacement_.push_back(unknown);
  }
}

void BpeEncoder::index_symbols(const TokenizerData& data, const Vocabulary& vocabulary) {
  for (uint32_t i = 0; i < vocabulary_; ++i) {
    const TokenId token = static_cast<TokenId>(i);
    // A normal token whose text is not in the byte alphabet is never the outcome of a merge.
    if (vocabulary.type(token) != TokenType::kNormal) continue;
    if (data.tokens[i].empty() || !decode_byte_text(data.tokens[i])) continue;
    symbols_.insert(vocabulary.bytes(token), i);
  }
  // User-defined tokens are found before this encoder sees the text, but may be merges as well.
  for (uint32_t i = 0; i < vocabulary_; ++i) {
    const TokenId token = static_cast<TokenId>(i);
    const std::string_view bytes = vocabulary.bytes(token);
    const bool plain = !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](char c) {
      return byte_to_code_point(static_cast<uint8_t>(c)) == static_cast<uint8_t>(c) && c > 0;
    });
    if (vocabulary.type(token) == TokenType::kUserDefined && plain) symbols_.insert(bytes, i);
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    byte_symbol_[byte] = intern(std::string(1, static_cast<char>(byte)));
  }
}

uint32_t BpeEncoder::intern(const std::string& bytes) {
  const uint32_t known = symbols_.find(bytes);
  if (known != StringIndex::kAbsent) return known;
  tokenless_.push_back(bytes);
  const uint32_t symbol = vocabulary_ + static_cast<uint32_t>(tokenless_.size() - 1);
  return symbols_.insert(tokenless_.back(), symbol);
}

void BpeEncoder::index_merges(const TokenizerData& data) {
  for (uint32_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view merge = data.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos) continue;
    const auto left = decode_byte_text(merge.substr(0, space));
    const auto right = decode_byte_text(merge.substr(space + 1));
    if (!left || !right || right->empty()) continue;
    const uint32_t merged = intern(*left + *right);
    merges_.insert(intern(*left), intern(*right), {rank, merged});
  }
}

void BpeEncoder::encode(std::span<const TextPart> parts, std::vector<TokenId>& tokens) const {
  Pretokenizer::Scratch scratch;
  std::vector<size_t> word_bytes;
  WordCache cache(text_bytes(parts));
  Work work;
  for (const TextPart& part : parts) {
    if (part.token >= 0) {
      tokens.push_back(part.token);
      continue;
    }
    word_bytes.clear();
    pretokenizer_.split(part.text, scratch, word_bytes);
    size_t at = 0;
    for (const size_t bytes : word_bytes) {
      cache.append(part.text.substr(at, bytes), tokens,
                   [&](std::string_view word) { encode_word(word, work, tokens); });
      at += bytes;
    }
  }
}

void BpeEncoder::encode_word(std::string_view word, Work& work,
                             std::vector<TokenId>& tokens) const {
  if (pretokenizer_.ignores_merges()) {
    const uint32_t symbol = symbols_.find(word);
    if (symbol < vocabulary_) {
      tokens.push_back(static_cast<TokenId>(symbol));
      return;
    }
  }
  work.symbols.clear();
  work.heap.clear();
  const uint32_t count = static_cast<uint32_t>(word.size());
  for (uint32_t i = 0; i < count; ++i) {
    work.symbols.push_back({byte_symbol_[static_cast<uint8_t>(word[i])], i == 0 ? kNobody : i - 1,
                            i + 1 == count ? kNobody : i + 1});
    if (i > 0) push_pair(work, i - 1, i);
  }
  merge_symbols(work);
  for (uint32_t i = 0; i != kNobody; i = work.symbols[i].next) {
    append_symbol(work.symbols[i].id, tokens);
  }
}

void BpeEncoder::push_pair(Work& work, uint32_t left, uint32_t right) const {
  const uint32_t left_id = work.symbols[left].id;
  const uint32_t right_id = work.symbols[right].id;
  const MergeIndex::Merge* merge = merges_.find(left_id, right_id);
  if (merge == nullptr) return;
  const uint64_t order = static_cast<uint64_t>(merge->rank) << 32 | left;
  work.heap.push_back({order, left_id, right_id, merge->symbol});
  std::push_heap(work.heap.begin(), work.heap.end());
}

void BpeEncoder::merge_symbols(Work& work) const {
  std::vector<Symbol>& symbols = work.symbols;
  while (!work.heap.empty()) {
    std::pop_heap(work.heap.begin(), work.heap.end());
    const Pair pair = work.heap.back();
    work.heap.pop_back();
    const uint32_t left = static_cast<uint32_t>(pair.order);
    const uint32_t right = symbols[left].next;
    // One of the two has merged since.
    if (symbols[left].id != pair.left_id || right == kNobody) continue;
    if (symbols[right].id != pair.right_id) continue;
    symbols[left].id = pair.merged_id;
    symbols[left].next = symbols[right].next;
    symbols[right].id = kNobody;
    if (symbols[left].next != kNobody) {
      symbols[symbols[left].next].previous = left;
      push_pair(work, left, symbols[left].next);
    }
    if (symbols[left].previous != kNobody) push_pair(work, symbols[left].previous, left);
  }
}

void BpeEncoder::append_symbol(uint32_t symbol, std::vector<TokenId>& tokens) const {
  if (symbol < vocabulary_) {
    tokens.push_back(static_cast<TokenId>(symbol));
    return;
  }
  for (const char byte : tokenless_[symbol - vocabulary_]) {
    append_byte(static_cast<uint8_t>(byte), tokens);
  }
}

void BpeEncoder::append_byte(uint8_t byte, std::vector<TokenId>& tokens) const {
  const uint32_t symbol = byte_symbol_[byte];
  const bool never_in_utf8 = byte == 0xC0 || byte == 0xC1 || byte > 0xF4;
  if (symbol < vocabulary_) {
    tokens.push_back(static_cast<TokenId>(symbol));
  } else if (never_in_utf8) {
    tokens.insert(tokens.end(), replacement_.begin(), replacement_.end());
  }
}

}  // namespace spillway::model
