#include "model/jinja/json.h"

#include <cmath>
#include <cstdio>

#include "model/jinja/numbers.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/jinja/stable_sort.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

void append_escape(std::string& out, char32_t unit) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(unit));
  out += buffer;
}

void append_point(std::string& out, char32_t point, bool ensure_ascii) {
  switch (point) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (point < 0x20 || (ensure_ascii && point >= 0x7F && point < 0x10000)) {
    append_escape(out, point);
  } else if (ensure_ascii && point >= 0x10000) {
    append_escape(out, 0xD800 + ((point - 0x10000) >> 10));
    append_escape(out, 0xDC00 + ((point - 0x10000) & 0x3FF));
  } else {
    append_utf8(out, point);
  }
}

void append_string(Run& run, std::string& out, std::string_view text, bool ensure_ascii) {
  const size_t before = out.size();
  out += '"';
  for (size_t at = 0; at < text.size();) append_point(out, next_point(text, at), ensure_ascii);
  out += '"';
  run.charge(out.size() - before);
}

std::string float_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class Writer {
 public:
  Writer(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void value(const Value& value, int level) {
    const Nested nested(run_);
    run_.step();
    switch (value.kind()) {
      case Kind::kNone:
        out += "null";
        return;
      case Kind::kBool:
        out += value.as_bool() ? "true" : "false";
        return;
      case Kind::kInt:
      case Kind::kBigInt:
        append_text(run_, out, value);
        return;
      case Kind::kFloat:
        out += float_text(value.as_double());
        return;
      case Kind::kString:
        append_string(run_, out, value.text(), style_.ensure_ascii);
        return;
      case Kind::kList:
      case Kind::kTuple:
        list(value.items(), level);
        return;
      case Kind::kDict:
        dict(value.as_dict(), level);
        return;
      default:
        fail("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  std::string out;

 private:
  void line(int level) {
    if (!style_.indent) return;
    const size_t before = out.size();
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
    run_.charge(out.size() - before);
  }

  void list(const std::vector<Value>& items, int level) {
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) separate();
      line(level + 1);
      value(items[i], level + 1);
    }
    if (!items.empty()) line(level);
    out += ']';
  }

  void dict(const Dict& dict, int level) {
    std::vector<const Entry*> entries;
    for (const Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      stable_sort(entries,
                  [&](const Entry* a, const Entry* b) { return less(run_, a->first, b->first); });
    }
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) separate();
      line(level + 1);
      key(entries[i]->first);
      out += style_.key_separator;
      run_.charge(style_.key_separator.size());
      value(entries[i]->second, level + 1);
    }
    if (!entries.empty()) line(level);
    out += '}';
  }

  void separate() {
    out += style_.item_separator;
    run_.charge(style_.item_separator.size());
  }

  void key(const Value& key) {
    run_.step();
    if (key.is_string()) {
      append_string(run_, out, key.text(), style_.ensure_ascii);
    } else if (key.is_number() || key.is_none()) {
      out += '"';
      value(key, 0);
      out += '"';
    } else {
      fail("keys must be str, int, float, bool or None, not " + type_name(key));
    }
  }

  Run& run_;
  const JsonStyle& style_;
};

}  // namespace

std::string to_json(Run& run, const Value& value, const JsonStyle& style) {
  Writer writer(run, style);
  writer.value(value, 0);
  return std::move(writer.out);
}

}  // namespace spillway::model::jinja
