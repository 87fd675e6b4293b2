// Filters about HTML and URLs.
#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"

namespace spillway::model::jinja {
namespace {

Value safe(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "safe", arguments, {});
  if (input.is_markup()) return input;
  std::string text = to_text(run, input);
  run.charge(text.size());
  return Value::markup(std::move(text));
}

Value escape(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "escape", arguments, {});
  return Value::markup(to_html(run, input));
}

Value force_escape(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "forceescape", arguments, {});
  std::string text = html_escaped(to_text(run, input));
  run.charge(text.size());
  return Value::markup(std::move(text));
}

std::string url_quoted(Run& run, const Value& value, bool query) {
  static constexpr std::string_view kPlain = "_.-~";
  static constexpr char kHex[] = "0123456789ABCDEF";
  const std::string text = to_text(run, value);
  run.charge(text.size() * 3);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool alnum = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if ((byte < 0x80 && (alnum || kPlain.find(c) != std::string_view::npos)) ||
        (c == '/' && !query)) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

Value urlencode(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "urlencode", arguments, {});
  if (input.is_string() || !iterable(input)) return run.string(url_quoted(run, input, false));
  const Value pairs = input.is(Kind::kDict) ? Value::view({input, View::Part::kItems}) : input;
  std::string out;
  for (const Value& pair : to_items(run, pairs)) {
    const std::vector<Value> parts = to_items(run, pair);
    if (parts.size() != 2) fail("urlencode: each item must be a pair");
    if (!out.empty()) out += '&';
    out += url_quoted(run, parts[0], true) + "=" + url_quoted(run, parts[1], true);
  }
  return run.string(std::move(out));
}

Value xmlattr(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "xmlattr", arguments, {"autospace"});
  if (!input.is(Kind::kDict)) fail("xmlattr: expected a dict, got " + type_name(input));
  std::string out;
  for (const auto& [key, value] : input.as_dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) fail("xmlattr: attribute names must be str");
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail("Invalid character in attribute name: " + quoted(key.text()));
    }
    if (!out.empty()) out += ' ';
    out += to_html(run, key) + "=\"" + to_html(run, value) + "\"";
  }
  if (p.flag(0, true) && !out.empty()) out.insert(0, " ");
  return run.string(std::move(out));
}

template <const char* kName>
Value unsupported(Run&, const Value&, const Arguments&) {
  fail("the filter '" + std::string(kName) + "' is not supported in chat templates");
}

constexpr char kStriptags[] = "striptags";
constexpr char kUrlize[] = "urlize";

constexpr Filter kFilters[] = {
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"safe", safe},
    {"striptags", unsupported<kStriptags>},
    {"urlencode", urlencode},
    {"urlize", unsupported<kUrlize>},
    {"xmlattr", xmlattr},
};

}  // namespace

std::span<const Filter> markup_filters() { return kFilters; }

}  // namespace spillway::model::jinja
