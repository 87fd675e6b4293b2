#include "model/jinja/printing.h"

#include <cstdio>

#include "model/jinja/iterate.h"
#include "model/jinja/numbers.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

void append_repr(Run& run, std::string& out, const Value& value);

void append_items(Run& run, std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(run, out, items[i]);
  }
}

void append_entries(Run& run, std::string& out, const std::vector<Entry>& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(run, out, entries[i].first);
    out += ": ";
    append_repr(run, out, entries[i].second);
  }
}

void append_range(std::string& out, const Range& range) {
  out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) out += ", " + std::to_string(range.step);
  out += ")";
}

void append_view(Run& run, std::string& out, const View& view) {
  static constexpr const char* kNames[] = {"dict_keys", "dict_values", "dict_items"};
  out += std::string(kNames[static_cast<size_t>(view.part)]) + "([";
  const size_t count = view.dict.as_dict().entries.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    append_repr(run, out, view.at(i));
  }
  out += "])";
}

void append_namespace(Run& run, std::string& out, const Namespace& value) {
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, held] : value.attributes()) {
    if (!first) out += ", ";
    first = false;
    out += quoted(name) + ": ";
    append_repr(run, out, held);
  }
  out += "}>";
}

// A namespace may hold itself, and shared parts print many times: both the depth and the bytes
// are counted.
void append_repr(Run& run, std::string& out, const Value& value) {
  const Nested nested(run);
  run.step();
  const size_t before = out.size();
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      break;
    case Kind::kString:
      out += value.is_markup() ? "Markup(" + quoted(value.text()) + ")" : quoted(value.text());
      break;
    case Kind::kList:
      out += "[";
      append_items(run, out, value.items());
      out += "]";
      break;
    case Kind::kTuple:
      out += "(";
      append_items(run, out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict:
      out += "{";
      append_entries(run, out, value.as_dict().entries);
      out += "}";
      break;
    case Kind::kView:
      append_view(run, out, value.as_view());
      break;
    case Kind::kNamespace:
      append_namespace(run, out, value.as_namespace());
      break;
    default:
      append_text(run, out, value);
      return;
  }
  if (!value.is_sequence() && !value.is(Kind::kDict)) run.charge(out.size() - before);
}

}  // namespace

bool truthy(Run& run, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.as_dict().entries.empty();
    case Kind::kRange:
      return value.as_range().size() != 0;
    case Kind::kView:
      return !value.as_view().dict.as_dict().entries.empty();
    case Kind::kObject:
      return value.as_object().length(run).value_or(1) != 0;
    case Kind::kBigInt:
    case Kind::kNamespace:
    case Kind::kIterator:
      return true;
  }
  return true;
}

void append_text(Run& run, std::string& out, const Value& value) {
  const size_t before = out.size();
  switch (value.kind()) {
    case Kind::kUndefined:
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return;
    case Kind::kInt:
      out += std::to_string(value.as_int());
      return;
    case Kind::kBigInt:
      out += value.digits();
      break;
    case Kind::kFloat:
      out += float_repr(value.as_double());
      return;
    case Kind::kString:
      out += value.text();
      break;
    case Kind::kRange:
      append_range(out, value.as_range());
      return;
    case Kind::kIterator:
      out += "<" + std::string(value.as_iterator().type_name()) + " object" +
             std::string(kSomeAddress) + ">";
      return;
    case Kind::kObject:
      out += value.as_object().repr(run);
      break;
    default:
      append_repr(run, out, value);
      return;
  }
  run.charge(out.size() - before);
}

std::string to_text(Run& run, const Value& value) {
  std::string out;
  append_text(run, out, value);
  return out;
}

std::string to_repr(Run& run, const Value& value) {
  std::string out;
  append_repr(run, out, value);
  return out;
}

std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, at);
    char buffer[16];
    if (point == static_cast<unsigned char>(quote) || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == '\r') {
      out += "\\r";
    } else if (point == '\t') {
      out += "\\t";
    } else if (is_printable(point)) {
      out += text.substr(begin, at - begin);
    } else {
      const char* format = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(point));
      out += buffer;
    }
  }
  return out += quote;
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView: {
      static constexpr const char* kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(value.as_view().part)];
    }
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kIterator:
      return std::string(value.as_iterator().type_name());
    case Kind::kObject:
      return std::string(value.as_object().type_name());
  }
  return "object";
}

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string to_html(Run& run, const Value& value) {
  if (value.is_markup()) return value.text();
  std::string out = html_escaped(to_text(run, value));
  run.charge(out.size());
  return out;
}

}  // namespace spillway::model::jinja
