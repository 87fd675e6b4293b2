#include "server/json_to_jinja.h"

#include <boost/json/basic_parser_impl.hpp>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace spillway::server {
namespace {

namespace json = boost::json;
using model::jinja::Entry;
using model::jinja::Value;

constexpr size_t kDepthMax = 128;

// Boost.JSON's parser calls these; what is open lies on a stack.
class Builder {
 public:
  static constexpr size_t max_object_size = SIZE_MAX;
  static constexpr size_t max_array_size = SIZE_MAX;
  static constexpr size_t max_key_size = SIZE_MAX;
  static constexpr size_t max_string_size = SIZE_MAX;
  using error = boost::system::error_code;
  using text = json::string_view;

  Value take() { return std::move(done_); }

  bool on_document_begin(error&) { return true; }
  bool on_document_end(error&) { return true; }
  bool on_array_begin(error&) { return open(false); }
  bool on_array_end(size_t, error&) {
    Level level = close();
    return add(Value::list(std::move(level.items)));
  }
  bool on_object_begin(error&) { return open(true); }
  bool on_object_end(size_t, error&) {
    Level level = close();
    return add(Value::dict(std::move(level.entries)));
  }
  bool on_string_part(text part, size_t, error&) { return gather(part); }
  bool on_string(text part, size_t, error&) {
    gather(part);
    return add(Value::string(std::exchange(pending_, {})));
  }
  bool on_key_part(text part, size_t, error&) { return gather(part); }
  bool on_key(text part, size_t, error&) {
    gather(part);
    levels_.back().key = std::exchange(pending_, {});
    return true;
  }
  bool on_number_part(text part, error&) { return gather(part); }
  bool on_int64(int64_t value, text, error&) {
    pending_.clear();
    return add(Value::integer(value));
  }
  bool on_uint64(uint64_t value, text, error&) {
    pending_.clear();
    return add(Value::big_integer(std::to_string(value)));
  }
  // The parser's own doubles may be off by a bit, and large integers come here too.
  bool on_double(double, text part, error&) {
    gather(part);
    const std::string digits = std::exchange(pending_, {});
    if (digits.find_first_of(".eE") == std::string::npos) return add(Value::big_integer(digits));
    return add(Value::floating(std::strtod(digits.c_str(), nullptr)));
  }
  bool on_bool(bool value, error&) { return add(Value::boolean(value)); }
  bool on_null(error&) { return add(Value::none()); }
  bool on_comment_part(text, error&) { return true; }
  bool on_comment(text, error&) { return true; }

 private:
  struct Level {
    bool is_object = false;
    std::string key;  // of the next member
    std::vector<Value> items;
    std::vector<Entry> entries;
  };

  bool gather(text part) {
    pending_.append(part.data(), part.size());
    return true;
  }

  bool open(bool is_object) {
    levels_.emplace_back().is_object = is_object;
    return true;
  }

  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }

  bool add(Value value) {
    if (levels_.empty()) {
      done_ = std::move(value);
    } else if (Level& level = levels_.back(); level.is_object) {
      level.entries.emplace_back(Value::string(std::move(level.key)), std::move(value));
    } else {
      level.items.push_back(std::move(value));
    }
    return true;
  }

  std::string pending_;
  std::vector<Level> levels_;
  Value done_;
};

}  // namespace

Value to_jinja(const json::object& object) {
  std::vector<Entry> entries;
  entries.reserve(object.size());
  for (const json::key_value_pair& member : object) {
    entries.emplace_back(Value::string(std::string(member.key())), to_jinja(member.value()));
  }
  return Value::dict(std::move(entries));
}

Value to_jinja(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return Value::none();
    case json::kind::bool_:
      return Value::boolean(value.get_bool());
    case json::kind::int64:
      return Value::integer(value.get_int64());
    case json::kind::uint64:
      if (value.get_uint64() > INT64_MAX) {
        return Value::big_integer(std::to_string(value.get_uint64()));
      }
      return Value::integer(static_cast<int64_t>(value.get_uint64()));
    case json::kind::double_:
      return Value::floating(value.get_double());
    case json::kind::string:
      return Value::string(std::string(value.get_string()));
    case json::kind::array: {
      std::vector<Value> items;
      items.reserve(value.get_array().size());
      for (const json::value& item : value.get_array()) items.push_back(to_jinja(item));
      return Value::list(std::move(items));
    }
    case json::kind::object:
      return to_jinja(value.get_object());
  }
  return Value::none();
}

Result<Value> json_to_jinja(std::string_view text) {
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::basic_parser<Builder> parser(options);
  boost::system::error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!error && used < text.size() &&
      text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    error = json::error::extra_data;
  }
  if (error) {
    return invalid_argument("JSON error at byte " + std::to_string(used) + ": " + error.message());
  }
  return parser.handler().take();
}

}  // namespace spillway::server
