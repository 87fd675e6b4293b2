#include "model/jinja/split.h"

#include <algorithm>

#include "model/jinja/parameters.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

using Pieces = std::vector<std::string_view>;

Value to_list(Run& run, const Value& self, const Pieces& pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    items.push_back(run.string_like(self, std::string(piece)));
  }
  return run.list(std::move(items));
}

Pieces split_by(Run& run, std::string_view text, std::string_view separator, int64_t limit) {
  Pieces pieces;
  size_t at = 0;
  while (limit != 0) {
    const size_t found = find_bytes(text, separator, at);
    if (found == std::string_view::npos) break;
    run.step();
    pieces.push_back(text.substr(at, found - at));
    at = found + separator.size();
    if (limit > 0) --limit;
  }
  pieces.push_back(text.substr(at));
  return pieces;
}

// From the right. Reversing both strings keeps the search linear.
Pieces rsplit_by(Run& run, std::string_view text, std::string_view separator, int64_t limit) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  Pieces pieces;
  size_t end = 0;  // bytes of `text` cut off at its right
  for (const std::string_view piece : split_by(run, reversed_text, reversed_separator, limit)) {
    pieces.push_back(text.substr(text.size() - end - piece.size(), piece.size()));
    end += piece.size() + separator.size();
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Pieces split_spaces(Run& run, std::string_view text, int64_t limit) {
  Pieces pieces;
  text = strip_spaces(text, {.right = false});
  while (!text.empty()) {
    run.step();
    if (limit == 0) {
      pieces.push_back(text);
      break;
    }
    size_t end = 0;
    for (size_t at = 0; at < text.size() && !is_space(next_point(text, at));) end = at;
    pieces.push_back(text.substr(0, end));
    text = strip_spaces(text.substr(end), {.right = false});
    if (limit > 0) --limit;
  }
  return pieces;
}

Pieces rsplit_spaces(Run& run, std::string_view text, int64_t limit) {
  Pieces pieces;
  text = strip_spaces(text, {.left = false});
  while (!text.empty()) {
    run.step();
    if (limit == 0) {
      pieces.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t before = begin - 1;
      while ((static_cast<unsigned char>(text[before]) & 0xC0) == 0x80 && before > 0) --before;
      size_t at = before;
      if (is_space(next_point(text, at))) break;
      begin = before;
    }
    pieces.push_back(text.substr(begin));
    text = strip_spaces(text.substr(0, begin), {.left = false});
    if (limit > 0) --limit;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

template <bool kReverse>
Value split(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, kReverse ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
  const int64_t limit = p.integer(1, -1);
  run.step(static_cast<int64_t>(self.text().size() / 64));
  if (!p.has(0) || p.at(0).is_none()) {
    return to_list(
        run, self,
        kReverse ? rsplit_spaces(run, self.text(), limit) : split_spaces(run, self.text(), limit));
  }
  const std::string separator = p.text(0, "");
  if (separator.empty()) fail("empty separator");
  return to_list(run, self,
                 kReverse ? rsplit_by(run, self.text(), separator, limit)
                          : split_by(run, self.text(), separator, limit));
}

template <bool kReverse>
Value partition(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "partition", arguments, {""}, 1);
  const std::string separator = p.text(0, "");
  if (separator.empty()) fail("empty separator");
  const std::string_view text = self.text();
  const size_t found = kReverse ? rfind_bytes(text, separator) : find_bytes(text, separator, 0);
  Pieces pieces = kReverse ? Pieces{"", "", text} : Pieces{text, "", ""};
  if (found != std::string_view::npos) {
    pieces = {text.substr(0, found), separator, text.substr(found + separator.size())};
  }
  std::vector<Value> items;
  for (const std::string_view piece : pieces) {
    items.push_back(run.string_like(self, std::string(piece)));
  }
  return run.tuple(std::move(items));
}

}  // namespace

Value split_method(Run& run, const Value& self, const Arguments& arguments) {
  return split<false>(run, self, arguments);
}

Value rsplit_method(Run& run, const Value& self, const Arguments& arguments) {
  return split<true>(run, self, arguments);
}

Value splitlines_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "splitlines", arguments, {"keepends"});
  return to_list(run, self, split_lines(self.text(), p.flag(0, false)));
}

Value partition_method(Run& run, const Value& self, const Arguments& arguments) {
  return partition<false>(run, self, arguments);
}

Value rpartition_method(Run& run, const Value& self, const Arguments& arguments) {
  return partition<true>(run, self, arguments);
}

}  // namespace spillway::model::jinja
