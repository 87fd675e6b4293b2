#include "server/api/messages.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "server/api/breakpoints.h"
#include "server/api/fields.h"
#include "server/api/json_reader.h"

namespace spillway::server {
namespace {

constexpr size_t kMessagesMax = 65536;
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

// One text, with newlines between the parts; ends of static parts are noted in `marks`.
ApiResult<std::string> join_parts(const json::array& parts, const std::string& param,
                                  json::array& marks) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = param + "[" + std::to_string(i) + "]";
    const json::object* part = parts[i].if_object();
    if (part == nullptr) return bad_field(here, "'" + here + "' must be an object");
    Fields fields(*part, here + ".");
    const auto type = fields.text("type", 64);
    if (!fields.ok()) return fields.error();
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      return bad_field(here, "'" + here + "' has type '" + type.value_or("") +
                                 "', but this model takes text only: use type 'text'");
    }
    const std::string key = *type == "refusal" ? "refusal" : "text";
    const auto text = fields.text(key, size_t(-1));
    if (!fields.ok()) return fields.error();
    if (!text) return bad_field(here + "." + key, "'" + here + "." + key + "' is missing");
    if (i > 0) out += '\n';
    out += *text;
    if (auto noted = note_breakpoint(*part, here, out.size(), marks); !noted) return noted.error();
  }
  return out;
}

// Templates print arguments with tojson: a string would be quoted twice.
ApiResult<> parse_arguments(json::object& function, const std::string& param) {
  json::value* arguments = function.if_contains("arguments");
  if (arguments == nullptr || arguments->is_null()) {
    function["arguments"] = json::object{};
    return {};
  }
  if (arguments->is_object()) return {};
  const json::string* text = arguments->if_string();
  if (text == nullptr) return bad_field(param, "'" + param + "' must be a string holding JSON");
  if (text->empty()) {
    *arguments = json::object{};
    return {};
  }
  auto parsed = read_json({text->data(), text->size()});
  if (parsed && parsed->is_object()) *arguments = std::move(*parsed);
  return {};  // what a model once wrote wrongly is shown to it as it was
}

ApiResult<> check_tool_calls(json::object& message, const std::string& path) {
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr) return {};
  if (calls->is_null() || (calls->is_array() && calls->get_array().empty())) {
    message.erase("tool_calls");
    return {};
  }
  const std::string param = path + "tool_calls";
  if (!calls->is_array()) return bad_field(param, "'" + param + "' must be a list");
  for (size_t i = 0; i < calls->get_array().size(); ++i) {
    const std::string here = param + "[" + std::to_string(i) + "]";
    json::object* call = calls->get_array()[i].if_object();
    json::value* function = call == nullptr ? nullptr : call->if_contains("function");
    if (function == nullptr || !function->is_object()) {
      return bad_field(here, "'" + here + "' must be an object with a 'function'");
    }
    const json::value* name = function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string()) {
      return bad_field(here + ".function.name", "'" + here + ".function.name' must be a string");
    }
    auto parsed = parse_arguments(function->get_object(), here + ".function.arguments");
    if (!parsed) return parsed.error();
  }
  return {};
}

ApiResult<> normalize_content(json::object& message, const std::string& path, bool null_ok) {
  const std::string param = path + "content";
  json::value* content = message.if_contains("content");
  if (content != nullptr && content->is_string()) return {};
  if (content != nullptr && content->is_array()) {
    json::array marks;
    auto text = join_parts(content->get_array(), param, marks);
    if (!text) return text.error();
    *content = *text;
    attach_breakpoints(message, std::move(marks));
    return {};
  }
  if (content != nullptr && !content->is_null()) {
    return bad_field(param, "'" + param + "' must be a string or a list of text parts, got " +
                                std::string(kind_name(*content)));
  }
  const bool calls = message.contains("tool_calls") || message.contains("function_call");
  if (message.at("role").get_string() != "assistant" || !calls) {
    return bad_field(param, "'" + param + "' is missing: only an assistant message with " +
                                "tool_calls may be without content");
  }
  message["content"] = null_ok ? json::value(nullptr) : json::value("");
  return {};
}

ApiResult<json::object> normalize_message(const json::value& value, const std::string& path,
                                          bool null_ok) {
  const std::string name = path.substr(0, path.size() - 1);
  if (!value.is_object()) {
    return bad_field(name,
                     "'" + name + "' must be an object, got " + std::string(kind_name(value)));
  }
  json::object message = value.get_object();
  Fields fields(value.get_object(), path);
  const auto role = fields.text("role", 64);
  if (!fields.ok()) return fields.error();
  if (!role || std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    return bad_field(path + "role", "'" + path +
                                        "role' must be one of system, developer, user, "
                                        "assistant, tool or function");
  }
  if (*role == "developer") message["role"] = "system";
  if (auto checked = check_tool_calls(message, path); !checked) return checked.error();
  if (auto done = normalize_content(message, path, null_ok); !done) return done.error();
  return message;
}

}  // namespace

ApiResult<json::array> normalize_messages(const json::array& messages, bool null_content_ok) {
  if (messages.empty()) {
    return bad_field("messages", "'messages' is empty: at least one message is needed");
  }
  if (messages.size() > kMessagesMax) {
    return bad_field("messages",
                     "'messages' may hold at most " + std::to_string(kMessagesMax) + " messages");
  }
  json::array out;
  out.reserve(messages.size());
  for (const json::value& value : messages) {
    const std::string path = "messages[" + std::to_string(out.size()) + "].";
    auto message = normalize_message(value, path, null_content_ok);
    if (!message) return message.error();
    out.push_back(std::move(*message));
  }
  return out;
}

}  // namespace spillway::server
