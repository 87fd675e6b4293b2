#include "server/api/json_reader.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <string>
#include <vector>

namespace spillway::server {
namespace {

using boost::json::error_code;
using boost::json::string_view;

// Builds the value from the parser's events; each refusal names its cause in `complaint`.
struct Builder {
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = 4096;
  static constexpr size_t max_string_size = size_t(-1);

  explicit Builder(const JsonLimits& bounds) : limits(bounds) { stack.reset(); }

  JsonLimits limits;
  json::value_stack stack{};
  std::vector<std::vector<std::string>> open_objects{};
  std::string key{};
  size_t keys = 0;
  size_t values = 0;
  const char* complaint = nullptr;

  bool refuse(const char* why, error_code& ec) {
    complaint = why;
    ec = json::error::syntax;
    return false;
  }
  bool count_value(error_code& ec) {
    return ++values <= limits.values || refuse("holds too many values", ec);
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_array_begin(error_code& ec) { return count_value(ec); }
  bool on_array_end(size_t count, error_code&) {
    stack.push_array(count);
    return true;
  }
  bool on_object_begin(error_code& ec) {
    open_objects.emplace_back();
    return count_value(ec);
  }
  bool on_object_end(size_t count, error_code& ec) {
    auto& names = open_objects.back();
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
      return refuse("has a duplicate key in an object", ec);
    }
    open_objects.pop_back();
    stack.push_object(count);
    return true;
  }
  bool on_key_part(string_view part, size_t, error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(string_view part, size_t, error_code& ec) {
    key.append(part.data(), part.size());
    if (++keys > limits.keys || open_objects.back().size() >= limits.object_members) {
      return refuse("has too many keys", ec);
    }
    stack.push_key(key);
    open_objects.back().push_back(std::move(key));
    key.clear();
    return true;
  }
  bool on_string_part(string_view part, size_t, error_code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(string_view part, size_t, error_code& ec) {
    stack.push_string(part);
    return count_value(ec);
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t number, string_view, error_code& ec) {
    stack.push_int64(number);
    return count_value(ec);
  }
  bool on_uint64(uint64_t number, string_view, error_code& ec) {
    stack.push_uint64(number);
    return count_value(ec);
  }
  bool on_double(double number, string_view, error_code& ec) {
    if (!std::isfinite(number)) return refuse("has a number too large for a double", ec);
    stack.push_double(number);
    return count_value(ec);
  }
  bool on_bool(bool flag, error_code& ec) {
    stack.push_bool(flag);
    return count_value(ec);
  }
  bool on_null(error_code& ec) {
    stack.push_null();
    return count_value(ec);
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

ApiError malformed(const Builder& builder, error_code ec, size_t at) {
  std::string why = "is not valid JSON";
  if (builder.complaint != nullptr) {
    why = builder.complaint;
  } else if (ec == json::error::too_deep) {
    why = "is nested too deeply";
  } else if (ec == json::error::incomplete) {
    why = "ends in the middle of a value";
  } else if (ec) {
    why += ": " + ec.message();
  }
  return {.message = "the request body " + why + " (at byte " + std::to_string(at) + ")",
          .code = "invalid_json"};
}

}  // namespace

ApiResult<json::value> read_json(std::string_view text, const JsonLimits& limits) {
  json::parse_options options;
  options.max_depth = limits.depth;
  json::basic_parser<Builder> parser(options, limits);
  error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = json::error::extra_data;
  if (ec) return malformed(parser.handler(), ec, used);
  return parser.handler().stack.release();
}

ApiResult<json::object> read_json_object(std::string_view text) {
  auto value = read_json(text);
  if (!value) return value.error();
  if (!value->is_object()) {
    return ApiError{.message = "the request body must be a JSON object", .code = "invalid_json"};
  }
  return std::move(value->get_object());
}

}  // namespace spillway::server
