#include "server/api/chat_prompt.h"

#include <algorithm>
#include <boost/json.hpp>
#include <span>

#include "server/api/fields.h"
#include "server/api/messages.h"

namespace spillway::server {
namespace {

std::string control_piece(const model::Tokenizer& tokenizer, model::TokenId token) {
  return token < 0 ? std::string() : std::string(tokenizer.piece(token, true));
}

void read_tools(Fields& fields, ChatPrompt& prompt) {
  bool use = true;
  if (const json::value* choice = fields.find("tool_choice")) {
    const json::string* word = choice->if_string();
    if (word != nullptr && *word == "none") {
      use = false;
    } else if (word == nullptr || *word != "auto") {
      fields.fail("tool_choice",
                  "can only be 'auto' or 'none': forcing a tool call is not supported yet",
                  "unsupported");
    }
  }
  const json::array* tools = fields.array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string here = "tools[" + std::to_string(i) + "]";
    const json::object* tool = (*tools)[i].if_object();
    const json::value* function = tool == nullptr ? nullptr : tool->if_contains("function");
    const json::value* name = function == nullptr || !function->is_object()
                                  ? nullptr
                                  : function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string()) {
      return fields.fail(here, "must be {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
  }
  if (use && !tools->empty()) prompt.tools = *tools;
}

json::object template_context(const ServedModel& model, ChatPrompt prompt,
                              std::string_view marker) {
  json::object context;
  json::value messages = std::move(prompt.messages);
  model.control_text.mark(messages, marker);
  model.control_text.mark(prompt.tools, marker);
  json::value kwargs = std::move(prompt.template_kwargs);
  model.control_text.mark(kwargs, marker);
  context["add_generation_prompt"] = prompt.add_generation_prompt;
  context["bos_token"] = control_piece(*model.tokenizer, model.tokenizer->bos());
  context["eos_token"] = control_piece(*model.tokenizer, model.tokenizer->eos());
  for (auto& member : kwargs.get_object()) context[member.key()] = std::move(member.value());
  context["messages"] = std::move(messages);
  if (!prompt.tools.is_null()) context["tools"] = std::move(prompt.tools);
  return context;
}

std::string last_content(const ServedModel& model, const ChatPrompt& prompt,
                         std::string_view marker) {
  const json::value* content = prompt.messages.back().get_object().if_contains("content");
  if (content == nullptr || !content->is_string()) return {};
  std::string text(content->get_string().data(), content->get_string().size());
  model.control_text.mark_text(text, marker);
  const size_t end = text.find_last_not_of(" \t\r\n");
  text.resize(end == text.npos ? 0 : end + 1);
  const size_t start = text.find_first_not_of(" \t\r\n");
  return start == text.npos ? std::string() : text.substr(start);
}

// What the template closes the last message with is cut off.
ApiResult<> cut_after(std::string& rendered, const std::string& content) {
  const size_t at = content.empty() ? std::string::npos : rendered.rfind(content);
  if (at == std::string::npos) {
    return bad_field("continue_final_message",
                     "'continue_final_message' needs a last message whose text the template keeps");
  }
  rendered.resize(at + content.size());
  return {};
}

std::vector<model::TokenId> encode_rendered(const ServedModel& model, std::string_view rendered,
                                            std::string_view marker) {
  const model::Tokenizer& tokenizer = *model.tokenizer;
  auto tokens = model.control_text.encode(tokenizer, rendered, marker);
  const model::TokenId bos = tokenizer.bos();
  if (tokenizer.adds_bos() && bos >= 0 && (tokens.empty() || tokens[0] != bos)) {
    tokens.insert(tokens.begin(), bos);
  }
  return tokens;
}

// A text that stands for breakpoint `index` while the prompt is rendered.
std::string sign_of(const std::string& sign, size_t index) {
  return sign + std::to_string(index) + sign;
}

// The rendered prompt up to a breakpoint's sign, without the signs before it. Nothing: the template
// left it out.
std::optional<std::string> text_before(std::string_view rendered, const std::string& sign,
                                       size_t index) {
  const size_t end = rendered.find(sign_of(sign, index));
  if (end == rendered.npos) return std::nullopt;
  std::string text(rendered.substr(0, end));
  for (size_t at = text.find(sign); at != text.npos; at = text.find(sign, at)) {
    const size_t close = text.find(sign, at + sign.size());
    if (close == text.npos) break;
    text.erase(at, close + sign.size() - at);
  }
  return text;
}

// Templates trim and tokenizers merge across the marked place: what counts is how far the tokens of
// the text before it agree with the prompt's.
std::vector<scheduler::Breakpoint> place_breakpoints(const ServedModel& model, ChatPrompt prompt,
                                                     std::span<const model::TokenId> tokens,
                                                     const CacheOptions& options,
                                                     std::string_view marker) {
  std::vector<MarkedPlace> places = std::move(prompt.breakpoints);
  if (places.size() > options.breakpoints_max()) {
    places.erase(places.begin(), places.end() - static_cast<ptrdiff_t>(options.breakpoints_max()));
  }
  const json::value all = {prompt.messages, prompt.tools, prompt.template_kwargs,
                           json::string(marker)};
  const std::string sign = ControlText::free_marker(all);
  for (size_t i = places.size(); i > 0; --i) {  // from the last, so that offsets stay
    json::string& content =
        prompt.messages[places[i - 1].message].get_object().at("content").get_string();
    content.insert(places[i - 1].offset, sign_of(sign, i - 1));
  }
  std::vector<scheduler::Breakpoint> breakpoints;
  const auto rendered = model.render_chat(template_context(model, std::move(prompt), marker));
  if (!rendered) return breakpoints;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto text = text_before(*rendered, sign, i);
    if (!text) continue;
    const auto before = encode_rendered(model, *text, marker);
    const size_t most = std::min(before.size(), tokens.size());
    const auto differs =
        std::mismatch(before.begin(), before.begin() + ptrdiff_t(most), tokens.begin());
    const auto same = static_cast<uint32_t>(differs.first - before.begin());
    if (same > 0) breakpoints.push_back({same, places[i].ttl.value_or(options.ttl)});
  }
  std::sort(breakpoints.begin(), breakpoints.end(),
            [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  return breakpoints;
}

}  // namespace

ApiResult<ChatPrompt> read_chat_prompt(const json::object& body, const ServedModel& model) {
  Fields fields(body);
  ChatPrompt prompt;
  const json::array* messages = fields.array("messages");
  if (fields.ok() && messages == nullptr) fields.fail("messages", "is missing: a list is needed");
  read_tools(fields, prompt);
  fields.flag("add_generation_prompt", prompt.add_generation_prompt);
  fields.flag("continue_final_message", prompt.continue_final_message);
  if (prompt.continue_final_message) {
    if (fields.has("add_generation_prompt") && prompt.add_generation_prompt) {
      fields.fail("continue_final_message", "and 'add_generation_prompt' exclude each other");
    }
    prompt.add_generation_prompt = false;
  }
  if (const auto* kwargs = fields.object("chat_template_kwargs")) {
    prompt.template_kwargs = *kwargs;
  }
  if (const json::array* documents = fields.array("documents")) {
    prompt.template_kwargs["documents"] = *documents;
  }
  if (fields.has("chat_template")) {
    fields.fail("chat_template",
                "is not taken from requests: start the server with --chat-template", "unsupported");
  }
  if (!fields.ok()) return fields.error();
  auto normal = normalize_messages(*messages, model.template_takes_null);
  if (!normal) return normal.error();
  prompt.messages = std::move(*normal);
  prompt.breakpoints = take_breakpoints(prompt.messages);
  return prompt;
}

ApiResult<EncodedChat> encode_chat(const ServedModel& model, ChatPrompt prompt,
                                   const CacheOptions& options) {
  const json::value all = {prompt.messages, prompt.tools, prompt.template_kwargs};
  const std::string marker = ControlText::free_marker(all);
  const bool resume = prompt.continue_final_message;
  const std::string content = resume ? last_content(model, prompt, marker) : std::string();
  auto rendered = model.render_chat(template_context(model, prompt, marker));
  if (!rendered) {
    return bad_field("messages",
                     "the chat template refused these messages: " + rendered.error().message);
  }
  if (resume) {
    if (auto cut = cut_after(*rendered, content); !cut) return cut.error();
  }
  EncodedChat encoded{.tokens = encode_rendered(model, *rendered, marker), .breakpoints = {}};
  if (encoded.tokens.empty()) return bad_field("messages", "'messages' give an empty prompt");
  if (!prompt.breakpoints.empty()) {
    encoded.breakpoints =
        place_breakpoints(model, std::move(prompt), encoded.tokens, options, marker);
  }
  return encoded;
}

ApiResult<std::vector<model::TokenId>> encode_chat(const ServedModel& model, ChatPrompt prompt) {
  prompt.breakpoints.clear();
  auto encoded = encode_chat(model, std::move(prompt), {});
  if (!encoded) return encoded.error();
  return std::move(encoded->tokens);
}

void add_breakpoints(scheduler::Request& request,
                     const std::vector<scheduler::Breakpoint>& breakpoints) {
  // What is there already is the prompt's end.
  request.breakpoints.insert(request.breakpoints.begin(), breakpoints.begin(), breakpoints.end());
}

}  // namespace spillway::server
