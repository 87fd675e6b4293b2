// Filters that make text of text.
#include <algorithm>

#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/json.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

// A str as it is, anything else printed.
Value soft_string(Run& run, const Value& value) {
  return value.is_string() ? value : run.string(to_text(run, value));
}

template <std::string (*kMap)(std::string_view)>
Value mapped(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "filter", arguments, {});
  const Value text = soft_string(run, input);
  run.step(static_cast<int64_t>(text.text().size() / 16));
  return run.string_like(text, kMap(text.text()));
}

// Upper case after spaces, "-" and opening brackets, lower case elsewhere.
std::string title_words(std::string_view text) {
  static constexpr std::string_view kOpening = "-({[<";
  std::string out;
  bool was_separator = true;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    next_point(word, first);
    out += to_upper(std::string_view(word).substr(0, first));
    out += to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, at);
    const bool separator =
        is_space(point) ||
        (point < 0x80 && kOpening.find(static_cast<char>(point)) != std::string_view::npos);
    if (separator != was_separator) flush();
    was_separator = separator;
    word += text.substr(begin, at - begin);
  }
  flush();
  return out;
}

// Never markup, unlike the other case filters: jinja2 joins the words anew.
Value title(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "title", arguments, {});
  const std::string text = to_text(run, input);
  run.step(static_cast<int64_t>(text.size() / 16));
  return run.string(title_words(text));
}

Value string(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "string", arguments, {});
  return soft_string(run, input);
}

Value trim(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "trim", arguments, {"chars"});
  const Value text = soft_string(run, input);
  run.step(static_cast<int64_t>(text.text().size() / 64));
  const bool spaces = !p.has(0) || p.at(0).is_none();
  return run.string_like(text, std::string(spaces ? strip_spaces(text.text(), {})
                                                  : strip_points(text.text(), p.text(0, ""), {})));
}

Value replace_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = p.has(2) && !p.at(2).is_none() ? p.integer(2, -1) : -1;
  return run.string(
      replace(run, to_text(run, input), to_text(run, p.at(0)), to_text(run, p.at(1)), count));
}

Value indent(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "indent", arguments, {"width", "first", "blank"});
  std::string indention;
  if (p.has(0) && p.at(0).is_string()) {
    indention = p.at(0).text();
  } else {
    const int64_t width = std::max<int64_t>(p.integer(0, 4), 0);
    run.charge(static_cast<size_t>(width));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is_string()) fail("indent: expected a str, got " + type_name(input));
  const bool blank = p.flag(2, false);
  const std::string text = input.text() + "\n";
  std::string out = p.flag(1, false) ? indention : "";
  bool first_line = true;
  for (const std::string_view line : split_lines(text, false)) {
    run.charge(line.size() + indention.size() + 1);
    if (!first_line) {
      out += '\n';
      if (blank || !line.empty()) out += indention;
    }
    first_line = false;
    out += line;
  }
  return run.string_like(input, std::move(out));
}

Value center(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "center", arguments, {"width"});
  const Value text = soft_string(run, input);
  const int64_t width = p.integer(0, 80);
  const int64_t missing = std::max<int64_t>(width - text.as_string().characters, 0);
  const int64_t left = missing / 2 + (missing & width & 1);
  run.charge(static_cast<size_t>(missing));
  return run.string_like(text, std::string(static_cast<size_t>(left), ' ') + text.text() +
                                   std::string(static_cast<size_t>(missing - left), ' '));
}

Value format(Run& run, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value values = run.tuple(arguments.positional);
  if (!arguments.keyword.empty()) {
    std::vector<Entry> entries;
    for (const auto& [name, value] : arguments.keyword) {
      entries.emplace_back(run.string(name), value);
    }
    values = run.dict(std::move(entries));
  }
  return modulo(run, soft_string(run, input), values);
}

Value truncate(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = p.integer(0, 255);
  const std::string end = p.text(2, "...");
  const int64_t leeway = p.has(3) && !p.at(3).is_none() ? p.integer(3, 5) : 5;
  const int64_t keep = length - count_points(end);
  if (keep < 0) fail("truncate: expected length >= " + std::to_string(count_points(end)));
  if (leeway < 0) fail("truncate: expected leeway >= 0");
  if (input.is_undefined()) return input;
  const auto size = length_of(run, input);
  if (size && *size <= length + leeway) return input;
  if (!input.is_string()) fail("truncate: expected a str, got " + type_name(input));
  std::string_view text = input.text();
  text = text.substr(0, byte_offset(text, keep));
  if (!p.flag(1, false)) text = text.substr(0, text.rfind(' '));
  return run.string_like(input, std::string(text) + (input.is_markup() ? html_escaped(end) : end));
}

Value wordcount(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "wordcount", arguments, {});
  const std::string text = to_text(run, input);
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    const bool inside = point == '_' || is_alphabetic(point) || is_numeric(point);
    words += inside && !in_word;
    in_word = inside;
  }
  return Value::integer(words);
}

Value join(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "join", arguments, {"d", "attribute"});
  const std::string separator = p.has(0) ? to_text(run, p.at(0)) : "";
  const AttributePath path(run, p.value(1, Value::none()));
  const auto source = iterate(run, input);
  std::string out;
  bool first = true;
  while (const std::optional<Value> item = source->next(run)) {
    if (!first) {
      run.charge(separator.size());
      out += separator;
    }
    first = false;
    append_text(run, out, path.get(run, *item));
  }
  return run.string(std::move(out));
}

Value tojson(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "tojson", arguments,
                     {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  style.sort_keys = p.flag(3, false);
  if (p.has(1) && !p.at(1).is_none()) {
    style.item_separator = ",";
    if (p.at(1).is_string()) {
      style.indent = p.at(1).text();
    } else {
      const int64_t width = std::max<int64_t>(p.integer(1, 0), 0);
      run.charge(static_cast<size_t>(width));
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (p.has(2) && !p.at(2).is_none()) {
    const std::vector<Value> pair = to_items(run, p.at(2));
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      fail("tojson: separators must be two strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return run.string(to_json(run, input, style));
}

template <const char* kName>
Value unsupported(Run&, const Value&, const Arguments&) {
  fail("the filter '" + std::string(kName) + "' is not supported in chat templates");
}

constexpr char kPprint[] = "pprint";
constexpr char kWordwrap[] = "wordwrap";

constexpr Filter kFilters[] = {
    {"capitalize", mapped<to_capitalized>},
    {"center", center},
    {"format", format},
    {"indent", indent},
    {"join", join},
    {"lower", mapped<to_lower>},
    {"pprint", unsupported<kPprint>},
    {"replace", replace_filter},
    {"string", string},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", mapped<to_upper>},
    {"wordcount", wordcount},
    {"wordwrap", unsupported<kWordwrap>},
};

}  // namespace

std::span<const Filter> text_filters() { return kFilters; }

}  // namespace spillway::model::jinja
