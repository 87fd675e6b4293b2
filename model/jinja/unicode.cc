#include "model/jinja/unicode.h"

#include <algorithm>
#include <iterator>

namespace spillway::model::jinja {
namespace {

// Points first, first + stride, ..., last; `value` is a mapping's delta.
struct PointRange {
  uint32_t first, last, stride;
  int32_t value;
};

struct LongMapping {
  uint32_t from;
  uint32_t to[3];
};

#include "model/jinja/unicode_tables.inc"

// The ranges ascend and never interleave.
template <size_t N>
const PointRange* find(const PointRange (&table)[N], char32_t point) {
  const PointRange* range =
      std::lower_bound(std::begin(table), std::end(table), point,
                       [](const PointRange& r, char32_t p) { return r.last < p; });
  if (range == std::end(table) || point < range->first) return nullptr;
  return (point - range->first) % range->stride == 0 ? range : nullptr;
}

template <size_t N, size_t M>
void append_mapped(std::string& out, char32_t point, const PointRange (&simple)[N],
                   const LongMapping (&longer)[M]) {
  if (const PointRange* range = find(simple, point)) {
    append_utf8(out, static_cast<char32_t>(static_cast<int64_t>(point) + range->value));
    return;
  }
  const LongMapping* entry =
      std::lower_bound(std::begin(longer), std::end(longer), point,
                       [](const LongMapping& m, char32_t p) { return m.from < p; });
  if (point != 0 && entry != std::end(longer) && entry->from == point) {
    for (const uint32_t to : entry->to) {
      if (to != 0) append_utf8(out, to);
    }
    return;
  }
  append_utf8(out, point);
}

bool is_cased(char32_t point) { return is_upper(point) || is_lower(point) || is_title(point); }

char32_t previous_point(std::string_view text, size_t& at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  size_t copy = at;
  return next_point(text, copy);
}

// Unicode's Final_Sigma: a cased letter before, none after, ignorable marks skipped.
bool sigma_is_final(std::string_view text, size_t begin, size_t end) {
  bool after_letter = false;
  for (size_t at = begin; at > 0;) {
    const char32_t point = previous_point(text, at);
    if (find(kCaseIgnorable, point) != nullptr) continue;
    after_letter = is_cased(point);
    break;
  }
  if (!after_letter) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (find(kCaseIgnorable, point) != nullptr) continue;
    return !is_cased(point);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end,
                  char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point >= 'A' && point <= 'Z' ? point + 32 : point);
  } else if (point == 0x3A3) {
    append_utf8(out, sigma_is_final(text, begin, end) ? 0x3C2 : 0x3C3);
  } else {
    append_mapped(out, point, kLower, kLowerLong);
  }
}

}  // namespace

void append_utf8(std::string& out, char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | (point >> 6));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | (point >> 12));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (point >> 18));
    out += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

char32_t next_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const char32_t lead = byte(at);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    at += 2;
    return (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  }
  if (lead < 0xF0) {
    at += 3;
    return (lead & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  }
  at += 4;
  return (lead & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
         (byte(at - 1) & 0x3F);
}

size_t byte_offset(std::string_view text, int64_t character) {
  size_t at = 0;
  for (; character > 0 && at < text.size(); --character) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return at;
}

int64_t count_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

bool valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0 || text.size() - at < length) return false;
    for (size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return false;
    }
    size_t end = at;
    const char32_t point = next_point(text, end);
    if (length == 3 && (point < 0x800 || (point >= 0xD800 && point <= 0xDFFF))) return false;
    if (length == 4 && (point < 0x10000 || point > 0x10FFFF)) return false;
    at = end;
  }
  return true;
}

bool is_printable(char32_t p) { return p < 0x7F ? p >= 0x20 : find(kUnprintable, p) == nullptr; }

bool is_space(char32_t p) {
  if (p < 0x80) return (p >= 9 && p <= 13) || (p >= 28 && p <= 32);
  return p == 0x85 || p == 0xA0 || p == 0x1680 || (p >= 0x2000 && p <= 0x200A) || p == 0x2028 ||
         p == 0x2029 || p == 0x202F || p == 0x205F || p == 0x3000;
}

bool is_alphabetic(char32_t p) { return find(kAlphabetic, p) != nullptr; }
bool is_decimal(char32_t p) { return find(kDecimal, p) != nullptr; }
bool is_digit(char32_t p) { return is_decimal(p) || find(kDigit, p) != nullptr; }
bool is_numeric(char32_t p) { return is_digit(p) || find(kNumeric, p) != nullptr; }
bool is_upper(char32_t p) { return find(kUppercase, p) != nullptr; }
bool is_lower(char32_t p) { return find(kLowercase, p) != nullptr; }
bool is_title(char32_t p) { return find(kTitlecase, p) != nullptr; }
bool is_identifier_start(char32_t p) { return find(kIdentifierStart, p) != nullptr; }
bool is_identifier_part(char32_t p) { return find(kIdentifierPart, p) != nullptr; }

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (point < 0x80) {
      out += static_cast<char>(point >= 'a' && point <= 'z' ? point - 32 : point);
    } else {
      append_mapped(out, point, kUpper, kUpperLong);
    }
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, at);
    append_lower(out, text, begin, at, point);
  }
  return out;
}

std::string to_folded(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    append_mapped(out, next_point(text, at), kFold, kFoldLong);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, at);
    if (begin == 0) {
      append_mapped(out, point, kTitle, kTitleLong);
    } else {
      append_lower(out, text, begin, at, point);
    }
  }
  return out;
}

std::string to_titled(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, at);
    if (in_word) {
      append_lower(out, text, begin, at, point);
    } else {
      append_mapped(out, point, kTitle, kTitleLong);
    }
    in_word = is_cased(point);
  }
  return out;
}

std::string to_swapped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, at);
    if (is_upper(point)) {
      append_lower(out, text, begin, at, point);
    } else if (is_lower(point)) {
      append_mapped(out, point, kUpper, kUpperLong);
    } else {
      append_utf8(out, point);
    }
  }
  return out;
}

}  // namespace spillway::model::jinja
