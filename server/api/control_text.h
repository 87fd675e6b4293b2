// Keeps a client's text from becoming control tokens (case M2).
//
// A chat template mixes its own control tokens (<|im_end|>) with what users wrote. Before
// rendering, a marker is put before each place in user text that spells a control token; after
// rendering, those places are known to be plain text, and only the template's own spellings become
// control tokens. Immutable: any thread.
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer.h"

namespace spillway::server {

class ControlText {
 public:
  ControlText() = default;
  explicit ControlText(const model::Tokenizer& tokenizer);

  // A code point that appears nowhere in `value`, as UTF-8.
  static std::string free_marker(const boost::json::value& value);
  // Puts `marker` before every spelling of a control token in all strings of `value`.
  void mark(boost::json::value& value, std::string_view marker) const;
  void mark_text(std::string& text, std::string_view marker) const;
  // Tokens of a rendered prompt; marked spellings stay plain text. No BOS is added.
  std::vector<model::TokenId> encode(const model::Tokenizer& tokenizer, std::string_view rendered,
                                     std::string_view marker) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Spellings = std::unordered_map<std::string, model::TokenId, Hash, std::equal_to<>>;

  // The longest control token spelled at the start of `text`; null if none. Time does not grow with
  // the number of control tokens: Gemma has 6,249 that begin with "<".
  const Spellings::value_type* match(std::string_view text) const;

  Spellings spellings_;
  std::vector<std::vector<size_t>> lengths_;  // of the spellings, by first byte, the longest first
};

}  // namespace spillway::server
