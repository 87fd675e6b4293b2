// str.format: "{} and {name.first!r:>8}".
#include "model/jinja/attributes.h"
#include "model/jinja/format_spec.h"
#include "model/jinja/numbers.h"
#include "model/jinja/printing.h"

namespace spillway::model::jinja {
namespace {

class Formatter {
 public:
  Formatter(Run& run, const Arguments& arguments, bool escape)
      : run_(run), arguments_(arguments), escape_(escape) {}

  std::string format(std::string_view text, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = text.find_first_of("{}", at);
      const size_t end = brace == std::string_view::npos ? text.size() : brace;
      out += text.substr(at, end - at);
      run_.charge(end - at);
      at = end;
      if (at == text.size()) break;
      const char c = text[at];
      if (at + 1 < text.size() && text[at + 1] == c) {
        out += c;
        at += 2;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        const size_t close = closing(text, at);
        out += field(text.substr(at + 1, close - at - 1), depth);
        at = close + 1;
      }
    }
    return out;
  }

 private:
  static size_t closing(std::string_view text, size_t open) {
    int depth = 0;
    bool in_brackets = false;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '[' && depth == 1) in_brackets = true;
      if (text[i] == ']') in_brackets = false;
      if (in_brackets) continue;
      if (text[i] == '{') ++depth;
      if (text[i] == '}' && --depth == 0) return i;
    }
    fail(open + 1 == text.size() ? "Single '{' encountered in format string"
                                 : "expected '}' before end of string");
  }

  std::string field(std::string_view field, int depth) {
    run_.step();
    size_t end = 0;
    bool in_brackets = false;
    for (; end < field.size(); ++end) {
      if (field[end] == '[') in_brackets = true;
      if (field[end] == ']') in_brackets = false;
      if (!in_brackets && (field[end] == ':' || field[end] == '!')) break;
    }
    const std::string_view name = field.substr(0, end);
    std::string_view rest = field.substr(end);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2) fail("end of string while looking for conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    Value value = lookup(name);
    const std::string spec = format(rest, depth + 1);
    if (conversion == 's') value = run_.string(to_text(run_, value));
    if (conversion == 'r' || conversion == 'a') value = run_.string(to_repr(run_, value));
    if (conversion != '\0' && conversion != 's' && conversion != 'r' && conversion != 'a') {
      fail("Unknown conversion specifier " + std::string(1, conversion));
    }
    if (!escape_) return format_value(run_, value, spec);
    if (value.is_markup() && spec.empty()) return value.text();
    return html_escaped(format_value(run_, value, spec));
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    std::string_view rest = name.substr(end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
        if (stop == 1) fail("Empty attribute in format string");
        value = get_attribute(run_, value, std::string(rest.substr(1, stop - 1)));
        rest.remove_prefix(stop);
        continue;
      }
      if (rest[0] != '[') fail("Only '.' or '[' may follow ']' in format field specifier");
      const size_t stop = rest.find(']');
      if (stop == std::string_view::npos) fail("Missing ']' in format string");
      const std::string_view key = rest.substr(1, stop - 1);
      if (key.empty()) fail("Empty attribute in format string");
      const bool is_number = key.find_first_not_of("0123456789") == std::string_view::npos;
      value = get_item(run_, value,
                       is_number ? Value::integer(parse_int(key, 10).value_or(0))
                                 : Value::string(std::string(key)));
      rest.remove_prefix(stop + 1);
    }
    return value;
  }

  Value first(std::string_view name) {
    const bool is_number =
        !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (name.empty() || is_number) {
      if (name.empty() ? numbering_ == 'm' : numbering_ == 'a') {
        fail("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = name.empty() ? 'a' : 'm';
      const auto index = name.empty() ? next_++ : parse_int(name, 10).value_or(0);
      if (static_cast<size_t>(index) >= arguments_.positional.size()) {
        fail("Replacement index " + std::to_string(index) +
             " out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    const Value* found = arguments_.find(name);
    if (found == nullptr) fail("str.format has no argument " + quoted(name));
    return *found;
  }

  Run& run_;
  const Arguments& arguments_;
  bool escape_;
  char numbering_ = '\0';
  int64_t next_ = 0;
};

}  // namespace

Value format_method(Run& run, const Value& self, const Arguments& arguments) {
  return run.string_like(self, Formatter(run, arguments, self.is_markup()).format(self.text(), 1));
}

}  // namespace spillway::model::jinja
