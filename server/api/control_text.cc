#include "server/api/control_text.h"

#include <algorithm>
#include <boost/json.hpp>

namespace spillway::server {
namespace {

namespace json = boost::json;

bool contains(const json::value& value, std::string_view text) {
  if (const auto* string = value.if_string()) {
    return std::string_view(string->data(), string->size()).find(text) != std::string_view::npos;
  }
  if (const auto* list = value.if_array()) {
    return std::any_of(list->begin(), list->end(),
                       [&](const json::value& item) { return contains(item, text); });
  }
  if (const auto* object = value.if_object()) {
    return std::any_of(object->begin(), object->end(), [&](const json::key_value_pair& member) {
      const std::string_view key(member.key().data(), member.key().size());
      return key.find(text) != key.npos || contains(member.value(), text);
    });
  }
  return false;
}

// U+10FFFD - index, in the last private use plane.
std::string private_code_point(uint32_t index) {
  const uint32_t code = 0x10FFFD - index;
  return {static_cast<char>(0xF0 | (code >> 18)), static_cast<char>(0x80 | ((code >> 12) & 63)),
          static_cast<char>(0x80 | ((code >> 6) & 63)), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

ControlText::ControlText(const model::Tokenizer& tokenizer) : lengths_(256) {
  for (uint32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const auto token = static_cast<model::TokenId>(id);
    if (!tokenizer.is_control(token)) continue;
    const std::string_view text = tokenizer.piece(token, true);
    if (text.empty() || !spellings_.emplace(text, token).second) continue;
    lengths_[static_cast<unsigned char>(text[0])].push_back(text.size());
  }
  for (auto& list : lengths_) {
    std::sort(list.begin(), list.end(), std::greater<>());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
}

const ControlText::Spellings::value_type* ControlText::match(std::string_view text) const {
  if (text.empty() || lengths_.empty()) return nullptr;
  for (const size_t length : lengths_[static_cast<unsigned char>(text[0])]) {
    if (length > text.size()) continue;
    const auto found = spellings_.find(text.substr(0, length));
    if (found != spellings_.end()) return &*found;
  }
  return nullptr;
}

std::string ControlText::free_marker(const json::value& value) {
  // A text of n bytes cannot hold n different code points, so this ends; in practice at once.
  for (uint32_t index = 0;; ++index) {
    std::string marker = private_code_point(index);
    if (!contains(value, marker)) return marker;
  }
}

void ControlText::mark_text(std::string& text, std::string_view marker) const {
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (match(std::string_view(text).substr(at)) == nullptr) continue;
    out.append(text, copied, at - copied).append(marker);
    copied = at;
  }
  if (copied > 0 || !out.empty()) text = out.append(text, copied);
}

void ControlText::mark(json::value& value, std::string_view marker) const {
  if (auto* string = value.if_string()) {
    std::string text(string->data(), string->size());
    mark_text(text, marker);
    if (text.size() != string->size()) *string = text;
  } else if (auto* list = value.if_array()) {
    for (json::value& item : *list) mark(item, marker);
  } else if (auto* object = value.if_object()) {
    json::object marked;
    for (auto& member : *object) {
      std::string key(member.key().data(), member.key().size());
      mark_text(key, marker);
      mark(member.value(), marker);
      marked.emplace(key, std::move(member.value()));
    }
    *object = std::move(marked);
  }
}

std::vector<model::TokenId> ControlText::encode(const model::Tokenizer& tokenizer,
                                                std::string_view rendered,
                                                std::string_view marker) const {
  std::vector<model::TokenId> tokens;
  std::string plain;
  const auto flush = [&] {
    if (plain.empty()) return;
    const auto part = tokenizer.encode(plain, {.add_special = false, .parse_special = false});
    tokens.insert(tokens.end(), part.begin(), part.end());
    plain.clear();
  };
  for (size_t at = 0; at < rendered.size();) {
    if (!marker.empty() && rendered.substr(at).starts_with(marker)) {
      at += marker.size();
      // What the marker stands before is plain, whatever it spells.
      if (at < rendered.size() && !rendered.substr(at).starts_with(marker)) plain += rendered[at++];
    } else if (const auto* spelling = match(rendered.substr(at))) {
      flush();
      tokens.push_back(spelling->second);
      at += spelling->first.size();
    } else {
      plain += rendered[at++];
    }
  }
  flush();
  return tokens;
}

}  // namespace spillway::server
