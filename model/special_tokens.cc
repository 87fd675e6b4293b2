#include "model/special_tokens.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace spillway::model {
namespace {

// Phi-3's special tokens, but for these, swallow the white space behind them. Its files do not say
// so; its tokenizer.json does.
bool is_phi3(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
}

// SentencePiece's end, which some vocabularies (Qwen 2, Gemma 3) have as an ordinary token, the end
// of struck-out HTML. It is found where control tokens are, as llama.cpp does, so that prompts
// become the same tokens; but it shows, and ends no answer.
constexpr std::string_view kSentenceEnd = "</s>";

bool strips_right(std::string_view text) {
  return text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string_view trim_right(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

SpecialTokens::SpecialTokens(const TokenizerData& data, const Vocabulary& vocabulary) : nodes_(1) {
  const bool phi3 = is_phi3(data.model_name);
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const TokenId token = static_cast<TokenId>(i);
    const TokenType type = vocabulary.type(token);
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown ||
                         data.tokens[i] == kSentenceEnd;
    if ((!control && type != TokenType::kUserDefined) || data.tokens[i].empty()) continue;
    Node& node = nodes_[add_path(data.tokens[i])];
    if (node.token >= 0) continue;
    node.token = token;
    node.control = control;
    node.strips_right = phi3 && strips_right(data.tokens[i]);
  }
}

uint32_t SpecialTokens::child(uint32_t node, char byte) const {
  uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

uint32_t SpecialTokens::add_path(std::string_view text) {
  auto add = [this](char byte, uint32_t next_sibling) {
    Node node;
    node.byte = byte;
    node.next_sibling = next_sibling;
    nodes_.push_back(node);
    return static_cast<uint32_t>(nodes_.size() - 1);
  };
  uint32_t& first = first_[static_cast<uint8_t>(text[0])];
  if (first == 0) first = add(text[0], 0);
  uint32_t at = first;
  for (const char byte : text.substr(1)) {
    uint32_t next = child(at, byte);
    if (next == 0) {
      next = add(byte, nodes_[at].first_child);
      nodes_[at].first_child = next;
    }
    at = next;
  }
  return at;
}

SpecialTokens::Found SpecialTokens::find_at(std::string_view text, size_t at,
                                            bool parse_control) const {
  Found found;
  uint32_t node = first_[static_cast<uint8_t>(text[at])];
  for (size_t end = at + 1; node != 0; ++end) {
    const Node& here = nodes_[node];
    if (here.token >= 0 && (parse_control || !here.control)) {
      found = {here.token, end - at, here.strips_left, here.strips_right};
    }
    if (end == text.size()) break;
    node = child(node, text[end]);
  }
  return found;
}

void SpecialTokens::split(std::string_view text, bool parse_control,
                          std::vector<TextPart>& parts) const {
  size_t begin = 0;
  size_t at = 0;
  bool after_special = true;
  while (at < text.size()) {
    const Found found = find_at(text, at, parse_control);
    if (found.token < 0) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(begin, at - begin);
    if (found.strips_left) before = trim_right(before);
    if (!before.empty()) parts.push_back({-1, before, after_special});
    parts.push_back({found.token, {}, false});
    after_special = true;
    at += found.bytes;
    while (found.strips_right && at < text.size() && is_space(text[at])) ++at;
    begin = at;
  }
  if (begin < text.size()) parts.push_back({-1, text.substr(begin), after_special});
}

}  // namespace spillway::model
