#include "server/api/fields.h"

#include <boost/json.hpp>
#include <cmath>

#include "server/api/json_text.h"

namespace spillway::server {
namespace {

std::string number_text(double value) { return to_json(json::value(value)); }

// An integer, also when written as 3.0. Nothing if it is none or does not fit.
std::optional<int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    if (number == std::floor(number) && std::abs(number) < 9e15) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;  // a uint64 past 2^63 fits no range of ours
}

}  // namespace

std::string_view kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      return "an object";
  }
  return "something else";
}

const json::value* Fields::find(std::string_view name) const {
  if (error_) return nullptr;
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::fail(std::string_view name, std::string message, std::string code) {
  std::string field = path(name);
  fail(bad_field(field, "'" + field + "' " + std::move(message), std::move(code)));
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

std::optional<int64_t> Fields::integer(std::string_view name, IntegerRange range) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string accepted = "must be an integer from " + std::to_string(range.low) + " to " +
                               std::to_string(range.high) + ", got ";
  const auto number = as_integer(*value);
  if (number && *number >= range.low && *number <= range.high) return number;
  fail(name, accepted + (value->is_number() ? to_json(*value) : std::string(kind_name(*value))));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, NumberRange range) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  double number = std::nan("");
  if (value->is_number()) number = value->to_number<double>();
  const bool low_ok = range.above_low ? number > range.low : number >= range.low;
  if (low_ok && number <= range.high) return number;  // false for NaN
  fail(name, std::string("must be a number ") + (range.above_low ? "above " : "from ") +
                 number_text(range.low) + " to " + number_text(range.high) + ", got " +
                 (value->is_number() ? to_json(*value) : std::string(kind_name(*value))));
  return std::nullopt;
}

void Fields::number(std::string_view name, NumberRange range, float& out) {
  if (const auto number = this->number(name, range)) out = static_cast<float>(*number);
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  fail(name, "must be true or false, got " + std::string(kind_name(*value)));
  return std::nullopt;
}

std::optional<std::string> Fields::text(std::string_view name, size_t bytes_max) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail(name, "must be a string, got " + std::string(kind_name(*value)));
    return std::nullopt;
  }
  const json::string& text = value->get_string();
  if (text.size() > bytes_max) {
    fail(name, "must have at most " + std::to_string(bytes_max) + " bytes, got " +
                   std::to_string(text.size()));
    return std::nullopt;
  }
  return std::string(text.data(), text.size());
}

std::vector<std::string> Fields::texts(std::string_view name, TextLimits limits) {
  const json::value* value = find(name);
  std::vector<std::string> out;
  if (value == nullptr) return out;
  const auto add = [&](const json::value& item) {
    if (!item.is_string()) {
      fail(name, "must be a string or a list of strings, got " + std::string(kind_name(item)));
    } else if (const json::string& text = item.get_string(); text.size() > limits.bytes) {
      fail(name, "may hold strings of at most " + std::to_string(limits.bytes) + " bytes");
    } else if (text.empty() && !limits.empty_ok) {
      fail(name, "must not hold an empty string");
    } else {
      out.emplace_back(text.data(), text.size());
    }
  };
  if (!value->is_array()) {
    add(*value);
    return out;
  }
  const json::array& list = value->get_array();
  if (list.size() > limits.count) {
    fail(name, "may hold at most " + std::to_string(limits.count) + " strings, got " +
                   std::to_string(list.size()));
    return out;
  }
  for (const json::value& item : list) {
    if (ok()) add(item);
  }
  return out;
}

ApiResult<std::vector<model::TokenId>> read_tokens(const json::array& list,
                                                   const std::string& param, uint32_t vocabulary) {
  std::vector<model::TokenId> out;
  out.reserve(list.size());
  for (const json::value& item : list) {
    const auto id = as_integer(item);
    if (!id || *id < 0 || *id >= vocabulary) {
      return bad_field(
          param, "'" + param + "[" + std::to_string(out.size()) +
                     "]' must be a token id from 0 to " + std::to_string(vocabulary - 1) +
                     ", got " + (item.is_number() ? to_json(item) : std::string(kind_name(item))));
    }
    out.push_back(static_cast<model::TokenId>(*id));
  }
  return out;
}

std::vector<model::TokenId> Fields::tokens(std::string_view name, size_t count_max,
                                           uint32_t vocabulary) {
  const json::array* list = array(name);
  if (list == nullptr) return {};
  if (list->size() > count_max) {
    fail(name, "may hold at most " + std::to_string(count_max) + " token ids, got " +
                   std::to_string(list->size()));
    return {};
  }
  auto ids = read_tokens(*list, path(name), vocabulary);
  if (ids) return std::move(*ids);
  fail(ids.error());
  return {};
}

const json::object* Fields::object(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return &value->get_object();
  fail(name, "must be an object, got " + std::string(kind_name(*value)));
  return nullptr;
}

const json::array* Fields::array(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return &value->get_array();
  fail(name, "must be a list, got " + std::string(kind_name(*value)));
  return nullptr;
}

}  // namespace spillway::server
