// Remembers, within one call of encode(), which tokens a word became, as words of a text recur.
// Direct mapped: bounded, and a hostile text only makes it miss.
#pragma once

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "model/flat_index.h"
#include "model/token.h"

namespace spillway::model {

class WordCache {
 public:
  explicit WordCache(size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<size_t>(text_bytes / 8, kEntriesMin, kEntriesMax))) {}

  // Appends the word's tokens: those of an earlier time, or what `encode(word)` appends. The
  // word's bytes must stay as long as the cache.
  template <class Encode>
  void append(std::string_view word, std::vector<TokenId>& tokens, Encode encode) {
    if (word.size() > kWordBytesMax) {
      encode(word);
      return;
    }
    Entry& entry = entries_[hash_bytes(word) & (entries_.size() - 1)];
    if (entry.word == word) {
      for (size_t i = 0; i < entry.count; ++i) {
        const TokenId token = tokens[entry.begin + i];
        tokens.push_back(token);
      }
      return;
    }
    const size_t begin = tokens.size();
    encode(word);
    entry = {word, begin, tokens.size() - begin};
  }

 private:
  static constexpr size_t kEntriesMin = 16;
  static constexpr size_t kEntriesMax = 8192;
  static constexpr size_t kWordBytesMax = 64;

  struct Entry {
    std::string_view word;
    size_t begin = 0;  // in the call's tokens
    size_t count = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace spillway::model
