#include "server/api/json_text.h"

#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "server/api/utf8.h"

namespace spillway::server {
namespace {

void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  out += text;
  if (text.find_first_of(".e") == text.npos) out += ".0";
}

void append_escape(std::string& out, unsigned char byte) {
  switch (byte) {
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
    default:
      break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

template <class Integer>
void append_integer(std::string& out, Integer value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7f) {
      append_escape(out, byte);
      ++at;
    } else if (byte < 0x80) {
      out += text[at++];
    } else if (const size_t length = utf8_length(text.substr(at)); length > 0) {
      out += text.substr(at, length);
      at += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++at;
    }
  }
  out += '"';
}

// Recursion is bounded: values come from read_json (depth limit) or are built here.
void append_json(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      out += "null";
      return;
    case json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      return;
    case json::kind::int64:
      return append_integer(out, value.get_int64());
    case json::kind::uint64:
      return append_integer(out, value.get_uint64());
    case json::kind::double_:
      return append_double(out, value.get_double());
    case json::kind::string:
      return append_quoted(out, {value.get_string().data(), value.get_string().size()});
    case json::kind::array: {
      out += '[';
      bool first = true;
      for (const json::value& item : value.get_array()) {
        if (!first) out += ',';
        first = false;
        append_json(out, item);
      }
      out += ']';
      return;
    }
    case json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& member : value.get_object()) {
        if (!first) out += ',';
        first = false;
        append_quoted(out, {member.key().data(), member.key().size()});
        out += ':';
        append_json(out, member.value());
      }
      out += '}';
      return;
    }
  }
}

std::string to_json(const json::value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

}  // namespace spillway::server
