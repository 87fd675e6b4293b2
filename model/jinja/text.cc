#include "model/jinja/text.h"

#include <algorithm>
#include <cstring>

#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

size_t last_point_start(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

template <class Drop>
std::string_view strip_if(std::string_view text, Ends ends, Drop drop) {
  while (ends.left && !text.empty()) {
    size_t at = 0;
    if (!drop(next_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (ends.right && !text.empty()) {
    const size_t start = last_point_start(text);
    size_t at = start;
    if (!drop(next_point(text, at))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

bool is_line_end(char32_t p) {
  return (p >= 0x0A && p <= 0x0D) || (p >= 0x1C && p <= 0x1E) || p == 0x85 || p == 0x2028 ||
         p == 0x2029;
}

}  // namespace

void fail_undefined(const Value& value) {
  const UndefinedInfo* info = value.undefined_info();
  fail(info == nullptr ? "the value is undefined" : info->message);
}

// memmem is linear (two-way); string::find is not.
size_t find_bytes(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_bytes(std::string_view text, std::string_view wanted) {
  if (wanted.size() > text.size()) return std::string_view::npos;
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  const size_t found = find_bytes(reversed_text, reversed_wanted, 0);
  if (found == std::string_view::npos) return found;
  return text.size() - found - wanted.size();
}

std::string_view strip_spaces(std::string_view text, Ends ends) {
  return strip_if(text, ends, is_space);
}

std::string_view strip_points(std::string_view text, std::string_view drop, Ends ends) {
  std::u32string points;
  for (size_t at = 0; at < drop.size();) points += next_point(drop, at);
  std::sort(points.begin(), points.end());
  return strip_if(text, ends, [&](char32_t point) {
    return std::binary_search(points.begin(), points.end(), point);
  });
}

std::string replace(Run& run, std::string_view text, std::string_view from, std::string_view to,
                    int64_t count) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {  // `to` goes before every code point and at the end
    while (count != 0) {
      run.charge(to.size() + 1);
      out += to;
      if (count > 0) --count;
      if (at == text.size()) return out;
      const size_t begin = at;
      next_point(text, at);
      out += text.substr(begin, at - begin);
    }
    return out += text.substr(at);
  }
  run.charge(text.size());
  while (count != 0) {
    const size_t found = find_bytes(text, from, at);
    if (found == std::string_view::npos) break;
    run.charge(to.size());
    run.step();
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    if (count > 0) --count;
  }
  return out += text.substr(at);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t point = next_point(text, at);
    if (!is_line_end(point)) continue;
    if (point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace spillway::model::jinja
