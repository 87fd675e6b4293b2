// The methods of str.
#include <algorithm>
#include <functional>

#include "model/jinja/attributes.h"
#include "model/jinja/iterate.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/split.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "str method", arguments, {});
  run.step(static_cast<int64_t>(self.text().size() / 16));
  return run.string_like(self, kMap(self.text()));
}

// Whether every code point passes, and there is one (or kEmpty for none).
template <bool (*kTest)(char32_t), bool kEmpty = false>
Value all_points(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "str method", arguments, {});
  const std::string& text = self.text();
  run.step(static_cast<int64_t>(text.size() / 16));
  if (text.empty()) return Value::boolean(kEmpty);
  for (size_t at = 0; at < text.size();) {
    if (!kTest(next_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

bool is_alphanumeric(char32_t point) { return is_alphabetic(point) || is_numeric(point); }
bool is_ascii(char32_t point) { return point < 0x80; }

template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
Value cased(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "str method", arguments, {});
  run.step(static_cast<int64_t>(self.text().size() / 16));
  bool found = false;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t point = next_point(self.text(), at);
    if (kOther(point) || is_title(point)) return Value::boolean(false);
    found = found || kWanted(point);
  }
  return Value::boolean(found);
}

Value is_titled(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "istitle", arguments, {});
  bool found = false;
  bool in_word = false;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t point = next_point(self.text(), at);
    const bool big = is_upper(point) || is_title(point);
    const bool small = is_lower(point);
    if ((big && in_word) || (small && !in_word)) return Value::boolean(false);
    found = found || big || small;
    in_word = big || small;
  }
  return Value::boolean(found);
}

Value is_identifier(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "isidentifier", arguments, {});
  const std::string& text = self.text();
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t point = next_point(text, at);
    if (first ? !is_identifier_start(point) : !is_identifier_part(point)) {
      return Value::boolean(false);
    }
  }
  return Value::boolean(!text.empty());
}

template <bool kLeft, bool kRight>
Value strip(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "strip", arguments, {""});
  const Ends ends{kLeft, kRight};
  run.step(static_cast<int64_t>(self.text().size() / 64));
  if (!p.has(0) || p.at(0).is_none()) {
    return run.string_like(self, std::string(strip_spaces(self.text(), ends)));
  }
  return run.string_like(self, std::string(strip_points(self.text(), p.text(0, ""), ends)));
}

// self[start:end] by the optional arguments at `index`, and where it begins.
struct Window {
  std::string_view text;
  int64_t start;
};

Window window(const Value& self, const Parameters& p, size_t index) {
  const int64_t size = self.as_string().characters;
  const auto bound = [&](size_t i, int64_t fallback) {
    if (!p.has(i) || p.at(i).is_none()) return fallback;
    const int64_t at = p.integer(i, fallback);
    return at < 0 ? std::max<int64_t>(std::max(at, -size) + size, 0) : at;
  };
  const int64_t start = bound(index, 0);
  const int64_t end = std::min(bound(index + 1, size), size);
  if (start > end) return {{}, start > size || end < start ? -1 : start};
  const std::string_view text = self.text();
  const size_t begin = byte_offset(text, start);
  return {text.substr(begin, byte_offset(text, end) - begin), start};
}

template <bool kReverse>
int64_t find_in(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "find", arguments, {"", "", ""}, 1);
  const std::string wanted = p.text(0, "");
  const Window part = window(self, p, 1);
  run.step(static_cast<int64_t>(self.text().size() / 64));
  if (part.start < 0) return -1;
  const size_t found = kReverse ? rfind_bytes(part.text, wanted) : find_bytes(part.text, wanted, 0);
  if (found == std::string_view::npos) return -1;
  return part.start + count_points(part.text.substr(0, found));
}

template <bool kReverse>
Value find_method_of(Run& run, const Value& self, const Arguments& arguments) {
  return Value::integer(find_in<kReverse>(run, self, arguments));
}

template <bool kReverse>
Value index_of(Run& run, const Value& self, const Arguments& arguments) {
  const int64_t found = find_in<kReverse>(run, self, arguments);
  if (found < 0) fail("substring not found");
  return Value::integer(found);
}

Value count_of(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "count", arguments, {"", "", ""}, 1);
  const std::string wanted = p.text(0, "");
  const Window part = window(self, p, 1);
  run.step(static_cast<int64_t>(self.text().size() / 64));
  if (part.start < 0) return Value::integer(0);
  if (wanted.empty()) return Value::integer(count_points(part.text) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = find_bytes(part.text, wanted, at)) != std::string_view::npos;) {
    run.step();
    ++count;
    at += wanted.size();
  }
  return Value::integer(count);
}

template <bool kEnd>
Value has_affix(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, kEnd ? "endswith" : "startswith", arguments, {"", "", ""}, 1);
  const Window part = window(self, p, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      fail(std::string(kEnd ? "endswith" : "startswith") +
           " first arg must be str or a tuple of str, not " + type_name(affix));
    }
    if (part.start < 0) return false;
    return kEnd ? part.text.ends_with(affix.text()) : part.text.starts_with(affix.text());
  };
  if (!p.at(0).is(Kind::kTuple)) return Value::boolean(matches(p.at(0)));
  const std::vector<Value>& affixes = p.at(0).items();
  run.step(static_cast<int64_t>(affixes.size()));
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
}

template <bool kEnd>
Value without_affix(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "removeprefix", arguments, {""}, 1);
  const std::string affix = p.text(0, "");
  std::string_view text = self.text();
  if (kEnd ? text.ends_with(affix) : text.starts_with(affix)) {
    kEnd ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return run.string_like(self, std::string(text));
}

Value replaced(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "replace", arguments, {"", "", ""}, 2);
  const std::string from = p.text(0, "");
  const std::string to = self.is_markup() ? to_html(run, p.at(1)) : p.text(1, "");
  return run.string_like(self, replace(run, self.text(), from, to, p.integer(2, -1)));
}

Value joined(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "join", arguments, {""}, 1);
  std::string out;
  size_t index = 0;
  for (const Value& item : to_items(run, p.at(0))) {
    if (!item.is_string() && !self.is_markup()) {
      fail("sequence item " + std::to_string(index) + ": expected str instance, " +
           type_name(item) + " found");
    }
    const std::string text = self.is_markup() ? to_html(run, item) : item.text();
    run.charge(text.size() + self.text().size());
    if (index++ > 0) out += self.text();
    out += text;
  }
  return run.string_like(self, std::move(out));
}

template <int kSide>  // 0: text left, 1: centre, 2: text right
Value justified(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "center", arguments, {"", ""}, 1);
  const std::string fill = p.text(1, " ");
  if (count_points(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t width = p.integer(0, 0);
  const int64_t missing = std::max<int64_t>(width - self.as_string().characters, 0);
  int64_t left = 0;
  if (kSide == 1) left = missing / 2 + (missing & width & 1);
  if (kSide == 2) left = missing;
  run.charge(std::min<size_t>(static_cast<size_t>(missing), size_t{1} << 60) * fill.size());
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return run.string_like(self, std::move(out));
}

Value zero_filled(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "zfill", arguments, {""}, 1);
  const int64_t missing = std::max<int64_t>(p.integer(0, 0) - self.as_string().characters, 0);
  run.charge(static_cast<size_t>(missing));
  std::string out = self.text();
  const bool has_sign = !out.empty() && (out[0] == '-' || out[0] == '+');
  out.insert(has_sign ? 1 : 0, static_cast<size_t>(missing), '0');
  return run.string_like(self, std::move(out));
}

Value expanded_tabs(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(run, "expandtabs", arguments, {"tabsize"});
  const int64_t size = p.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t point = next_point(self.text(), at);
    if (point == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      run.charge(static_cast<size_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      append_utf8(out, point);
      column = point == '\n' || point == '\r' ? 0 : column + 1;
    }
  }
  return run.string_like(self, std::move(out));
}

Value unsupported(Run&, const Value&, const Arguments&) {
  fail("this str method is not supported in chat templates");
}

constexpr Method kMethods[] = {
    {"capitalize", mapped<to_capitalized>},
    {"casefold", mapped<to_folded>},
    {"center", justified<1>},
    {"count", count_of},
    {"encode", unsupported},
    {"endswith", has_affix<true>},
    {"expandtabs", expanded_tabs},
    {"find", find_method_of<false>},
    {"format", format_method},
    {"format_map", unsupported},
    {"index", index_of<false>},
    {"isalnum", all_points<is_alphanumeric>},
    {"isalpha", all_points<is_alphabetic>},
    {"isascii", all_points<is_ascii, true>},
    {"isdecimal", all_points<is_decimal>},
    {"isdigit", all_points<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", cased<is_lower, is_upper>},
    {"isnumeric", all_points<is_numeric>},
    {"isprintable", all_points<is_printable, true>},
    {"isspace", all_points<is_space>},
    {"istitle", is_titled},
    {"isupper", cased<is_upper, is_lower>},
    {"join", joined},
    {"ljust", justified<0>},
    {"lower", mapped<to_lower>},
    {"lstrip", strip<true, false>},
    {"maketrans", unsupported},
    {"partition", partition_method},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"replace", replaced},
    {"rfind", find_method_of<true>},
    {"rindex", index_of<true>},
    {"rjust", justified<2>},
    {"rpartition", rpartition_method},
    {"rsplit", rsplit_method},
    {"rstrip", strip<false, true>},
    {"split", split_method},
    {"splitlines", splitlines_method},
    {"startswith", has_affix<false>},
    {"strip", strip<true, true>},
    {"swapcase", mapped<to_swapped>},
    {"title", mapped<to_titled>},
    {"translate", unsupported},
    {"upper", mapped<to_upper>},
    {"zfill", zero_filled},
};

}  // namespace

const Method* find_string_method(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kMethods), std::end(kMethods), name,
      [](const Method& method, std::string_view wanted) { return method.name < wanted; });
  return found != std::end(kMethods) && found->name == name ? found : nullptr;
}

}  // namespace spillway::model::jinja
