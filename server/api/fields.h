// Reads typed fields of a request object. The first wrong one is kept as the error, with its name
// as `param`; reads after it do nothing. An absent or null field leaves the default. Not thread
// safe; the object must outlive it.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/token.h"
#include "server/api/api_error.h"

namespace spillway::server {

namespace json = boost::json;

struct IntegerRange {
  int64_t low, high;
};
struct NumberRange {
  double low, high;
  bool above_low = false;  // low itself is refused
};
struct TextLimits {
  size_t count;  // strings in a list
  size_t bytes;  // of each
  bool empty_ok = false;
};

class Fields {
 public:
  explicit Fields(const json::object& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  // Null when absent, JSON null, or after an error.
  const json::value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::optional<int64_t> integer(std::string_view name, IntegerRange range);
  std::optional<double> number(std::string_view name, NumberRange range);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> text(std::string_view name, size_t bytes_max);
  // A string or a list of strings.
  std::vector<std::string> texts(std::string_view name, TextLimits limits);
  // A list of token ids below `vocabulary`.
  std::vector<model::TokenId> tokens(std::string_view name, size_t count_max, uint32_t vocabulary);
  const json::object* object(std::string_view name);
  const json::array* array(std::string_view name);

  void flag(std::string_view name, bool& out) { out = boolean(name).value_or(out); }
  void number(std::string_view name, NumberRange range, float& out);

  void fail(std::string_view name, std::string message, std::string code = "");
  void fail(ApiError error);
  bool ok() const { return !error_; }
  const ApiError& error() const { return *error_; }  // REQUIRES: !ok()
  std::string path(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  const json::object& object_;
  std::string prefix_;  // "" or "messages[2]."
  std::optional<ApiError> error_;
};

// "a string", "a list", ...: for messages.
std::string_view kind_name(const json::value& value);
// The ids of a JSON list, or which element is wrong. `param` names the list.
ApiResult<std::vector<model::TokenId>> read_tokens(const json::array& list,
                                                   const std::string& param, uint32_t vocabulary);

}  // namespace spillway::server
