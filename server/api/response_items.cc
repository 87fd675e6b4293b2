#include "server/api/response_items.h"

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "server/api/breakpoints.h"

namespace spillway::server {
namespace {

namespace json = boost::json;

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string_view() : std::string_view(text->data(), text->size());
}

// Content as a string, or text parts joined by newlines; ends of static parts go into `marks`.
ApiResult<json::string> read_content(const json::value& content, const std::string& here,
                                     json::array& marks) {
  if (const json::string* text = content.if_string()) return *text;
  const json::array* parts = content.if_array();
  if (parts == nullptr) {
    return bad_field(here, "'" + here + "' must be a string or a list of text parts");
  }
  json::string joined;
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string at = here + "[" + std::to_string(i) + "]";
    const json::object* part = (*parts)[i].if_object();
    const std::string_view type = part == nullptr ? std::string_view() : text_of(*part, "type");
    const bool refusal = type == "refusal";
    if (type != "input_text" && type != "output_text" && type != "text" && !refusal) {
      return bad_field(at, "'" + at + "' must be a text part: this model reads text only",
                       "unsupported");
    }
    const json::value* text = part->if_contains(refusal ? "refusal" : "text");
    if (text == nullptr || !text->is_string()) {
      return bad_field(at + ".text", "'" + at + ".text' must be a string");
    }
    if (i > 0) joined += "\n";
    joined += text->get_string();
    if (auto noted = note_breakpoint(*part, at, joined.size(), marks); !noted) return noted.error();
  }
  return joined;
}

ApiResult<json::object> read_message(const json::object& item, const std::string& here) {
  const std::string_view role = text_of(item, "role");
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    return bad_field(here + ".role",
                     "'" + here + ".role' must be user, assistant, system or developer");
  }
  const json::value* content = item.if_contains("content");
  if (content == nullptr) {
    return bad_field(here + ".content", "'" + here + ".content' is missing");
  }
  json::array marks;
  auto text = read_content(*content, here + ".content", marks);
  if (!text) return text.error();
  json::object message{{"role", role}, {"content", std::move(*text)}};
  attach_breakpoints(message, std::move(marks));
  return message;
}

ApiResult<json::object> read_call(const json::object& item, const std::string& here) {
  for (const char* name : {"name", "arguments", "call_id"}) {
    const json::value* value = item.if_contains(name);
    if (value == nullptr || !value->is_string()) {
      return bad_field(here + "." + name, "'" + here + "." + name + "' must be a string");
    }
  }
  const json::object function{{"name", item.at("name")}, {"arguments", item.at("arguments")}};
  const json::object call{{"id", item.at("call_id")}, {"type", "function"}, {"function", function}};
  return json::object{
      {"role", "assistant"}, {"content", nullptr}, {"tool_calls", json::array{call}}};
}

ApiResult<json::object> read_call_output(const json::object& item, const std::string& here) {
  const json::value* id = item.if_contains("call_id");
  if (id == nullptr || !id->is_string()) {
    return bad_field(here + ".call_id", "'" + here + ".call_id' must be a string");
  }
  const json::value* output = item.if_contains("output");
  if (output == nullptr) return bad_field(here + ".output", "'" + here + ".output' is missing");
  json::array marks;
  auto text = read_content(*output, here + ".output", marks);
  if (!text) return text.error();
  json::object message{{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(*text)}};
  attach_breakpoints(message, std::move(marks));
  return message;
}

// Consecutive calls of one turn become one assistant message with all of them.
void append_message(json::array& messages, json::object message) {
  const json::value* calls = message.if_contains("tool_calls");
  if (calls != nullptr && !messages.empty()) {
    json::object& last = messages.back().get_object();
    if (last.at("role") == "assistant") {
      json::value& all = last["tool_calls"];
      if (!all.is_array()) all = json::array{};
      all.get_array().push_back(calls->get_array().front());
      return;
    }
  }
  messages.push_back(std::move(message));
}

}  // namespace

ApiResult<json::array> read_response_input(const json::value& input) {
  json::array messages;
  if (const json::string* text = input.if_string()) {
    messages.push_back(json::object{{"role", "user"}, {"content", *text}});
    return messages;
  }
  const json::array* items = input.if_array();
  if (items == nullptr) return bad_field("input", "'input' must be a string or a list of items");
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string here = "input[" + std::to_string(i) + "]";
    const json::object* item = (*items)[i].if_object();
    if (item == nullptr) return bad_field(here, "'" + here + "' must be an object");
    const std::string_view type =
        item->contains("type") ? text_of(*item, "type") : std::string_view("message");
    if (type == "reasoning") continue;
    auto message = type == "message"         ? read_message(*item, here)
                   : type == "function_call" ? read_call(*item, here)
                   : type == "function_call_output"
                       ? read_call_output(*item, here)
                       : ApiResult<json::object>(bad_field(here + ".type",
                                                           "'" + here +
                                                               ".type' must be message, "
                                                               "function_call or "
                                                               "function_call_output",
                                                           "unsupported"));
    if (!message) return message.error();
    append_message(messages, std::move(*message));
  }
  return messages;
}

ApiResult<json::array> read_response_tools(const json::array& tools) {
  json::array out;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string here = "tools[" + std::to_string(i) + "]";
    const json::object* tool = tools[i].if_object();
    if (tool == nullptr || text_of(*tool, "type") != "function") {
      return bad_field(here + ".type", "'" + here + ".type' must be function: no tools are hosted",
                       "unsupported");
    }
    if (text_of(*tool, "name").empty()) {
      return bad_field(here + ".name", "'" + here + ".name' must be a string");
    }
    json::object function;
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      const json::value* value = tool->if_contains(name);
      if (value != nullptr && !value->is_null()) function[name] = *value;
    }
    out.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

}  // namespace spillway::server
