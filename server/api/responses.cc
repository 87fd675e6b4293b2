#include "server/api/responses.h"

#include <array>
#include <boost/json.hpp>

#include "server/api/chat_prompt.h"
#include "server/api/generation.h"
#include "server/api/json_reader.h"
#include "server/api/json_text.h"
#include "server/api/messages.h"
#include "server/api/random_id.h"
#include "server/api/response_items.h"

namespace spillway::server {
namespace {

// Asking for these and getting something else would mislead.
constexpr std::array<std::string_view, 4> kRefused = {"conversation", "prompt",
                                                      "context_management", "max_tool_calls"};

void refuse_unsupported(Fields& fields) {
  for (const std::string_view name : kRefused) {
    if (fields.has(name)) fields.fail(name, "is not supported", "unsupported");
  }
  if (fields.boolean("background").value_or(false)) {
    fields.fail("background", "is not supported: responses are computed while you wait",
                "unsupported");
  }
  if (const auto mode = fields.text("truncation", 64); mode && *mode != "disabled") {
    fields.fail("truncation", "can only be 'disabled': send a shorter conversation instead",
                "unsupported");
  }
  if (const auto n = fields.integer("n", {1, 1 << 20}); n && *n != 1) {
    fields.fail("n", "must be 1: a response has one answer", "unsupported");
  }
  const json::object* text = fields.object("text");
  const json::value* format = text == nullptr ? nullptr : text->if_contains("format");
  if (format != nullptr && !format->is_null()) {
    const json::object* object = format->if_object();
    const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
    if (type == nullptr || *type != "text") {
      fields.fail("text.format",
                  "can only be {\"type\": \"text\"}: structured output is not supported yet",
                  "unsupported");
    }
  }
}

// Log-probabilities are asked for by top_logprobs or by `include`.
std::optional<uint32_t> read_logprobs(Fields& fields) {
  const auto top = fields.integer("top_logprobs", {0, 20});
  bool wanted = top.value_or(0) > 0;
  if (const json::array* include = fields.array("include")) {
    for (const json::value& entry : *include) {
      wanted = wanted || entry == "message.output_text.logprobs";
    }
  }
  if (!wanted) return std::nullopt;
  return static_cast<uint32_t>(top.value_or(0));
}

json::value or_null(const json::object& body, std::string_view name) {
  const json::value* value = body.if_contains(name);
  return value == nullptr ? json::value(nullptr) : *value;
}

json::value or_else(const json::object& body, std::string_view name, json::value otherwise) {
  const json::value* value = body.if_contains(name);
  return value == nullptr || value->is_null() ? std::move(otherwise) : *value;
}

// The request's own fields as each response object repeats them.
json::object response_echo(const json::object& body, const Generation& generation, bool store) {
  return {{"background", false},
          {"model", generation.model_name},
          {"instructions", or_null(body, "instructions")},
          {"previous_response_id", or_null(body, "previous_response_id")},
          {"max_output_tokens", or_null(body, "max_output_tokens")},
          {"max_tool_calls", nullptr},
          {"metadata", or_else(body, "metadata", json::object{})},
          {"parallel_tool_calls", or_else(body, "parallel_tool_calls", true)},
          {"frequency_penalty", generation.sampling.frequency_penalty},
          {"presence_penalty", generation.sampling.presence_penalty},
          {"temperature", generation.sampling.temperature},
          {"top_p", generation.sampling.top_p},
          {"top_logprobs", or_else(body, "top_logprobs", 0)},
          {"tool_choice", or_else(body, "tool_choice", "auto")},
          {"tools", or_else(body, "tools", json::array{})},
          {"truncation", "disabled"},
          {"reasoning", json::object{{"effort", nullptr}, {"summary", nullptr}}},
          {"text", json::object{{"format", {{"type", "text"}}}}},
          {"service_tier", "default"},
          {"store", store},
          {"safety_identifier", or_null(body, "safety_identifier")},
          {"prompt_cache_key", or_null(body, "prompt_cache_key")},
          {"prompt_cache_options", cache_options_echo(generation.cache)},
          {"prompt_cache_retention", or_null(body, "prompt_cache_retention")},
          {"user", or_null(body, "user")}};
}

ApiError previous_not_found(const std::string& id) {
  return {.status = 400,
          .message = "the previous response '" + id.substr(0, 128) +
                     "' is not known here (any more): send the whole conversation as 'input'",
          .param = "previous_response_id",
          .code = "previous_response_not_found"};
}

std::shared_ptr<const StoredResponse> find_previous(const std::string& id,
                                                    const ResponseContext& context) {
  if (context.connection != nullptr) {
    if (auto found = context.connection->find(id, context.tenant)) return found;
  }
  return context.shared->find(id, context.tenant);
}

// The conversation up to now, then this request's input.
ApiResult<json::array> read_conversation(const json::object& body, Fields& fields,
                                         const ResponseContext& context, std::string& chain) {
  json::array messages;
  const auto previous = fields.text("previous_response_id", 256);
  if (!fields.ok()) return fields.error();
  if (previous) {
    const auto found = find_previous(*previous, context);
    if (found == nullptr) return previous_not_found(*previous);
    messages = found->messages;
    chain = found->chain;
  }
  const json::value* input = body.if_contains("input");
  if (input != nullptr && !input->is_null()) {
    auto items = read_response_input(*input);
    if (!items) return items.error();
    for (json::value& message : *items) messages.push_back(std::move(message));
  }
  return messages;
}

// Instructions stand in front; a conversation that starts with a system message keeps one only.
json::array with_instructions(json::array messages, const std::string& instructions) {
  if (instructions.empty()) return messages;
  if (!messages.empty()) {
    json::object& first = messages.front().get_object();
    const bool system = first.at("role") == "system" || first.at("role") == "developer";
    if (system && first.at("content").is_string()) {
      const json::string old = first.at("content").get_string();
      json::string joined(instructions);
      joined += "\n\n";
      joined += old;
      first["content"] = std::move(joined);
      shift_breakpoints(first, instructions.size() + 2);
      return messages;
    }
  }
  messages.insert(messages.begin(), json::object{{"role", "system"}, {"content", instructions}});
  return messages;
}

// The prompt of a request, rendered by the chat template and tokenized.
ApiResult<EncodedChat> encode_prompt(const ServedModel& model, const json::object& body,
                                     Fields& fields, json::array messages,
                                     const CacheOptions& cache) {
  const auto instructions = fields.text("instructions", size_t{4} << 20);
  json::object chat;
  if (const json::array* tools = fields.array("tools")) {
    auto read = read_response_tools(*tools);
    if (!read) return read.error();
    chat["tools"] = std::move(*read);
  }
  for (const char* name : {"tool_choice", "chat_template_kwargs"}) {
    if (const json::value* value = body.if_contains(name)) chat[name] = *value;
  }
  if (!fields.ok()) return fields.error();
  chat["messages"] = with_instructions(std::move(messages), instructions.value_or(""));
  if (chat["messages"].get_array().empty()) {
    return bad_field("input", "'input' is missing: a string or a list of items is needed");
  }
  auto prompt = read_chat_prompt(chat, model);
  if (!prompt) return prompt.error();
  return encode_chat(model, std::move(*prompt), cache);
}

class ResponseReply final : public Reply {
 public:
  ResponseReply(ResponseCall call, ResponseContext context)
      : call_(std::move(call)), context_(std::move(context)) {}

  void begin(std::string& wire) override {
    ResponseEvents::Events events;
    call_.events->open(events);
    if (call_.stream) append(events, wire);
  }

  ApiResult<> take(uint32_t, const scheduler::Output& output, std::string& wire) override {
    ResponseEvents::Events events;
    if (auto ended = check_finish(output); !ended) return ended.error();
    call_.events->take(output, events);
    if (call_.events->completed()) keep_response(call_, context_);
    if (call_.stream) append(events, wire);
    return {};
  }

  void fail(const ApiError& error, std::string& wire) override {
    ResponseEvents::Events events;
    call_.events->fail(error, events);
    append(events, wire);
    wire += "data: [DONE]\n\n";
  }

  void finish(std::string& wire) override {
    wire += call_.stream ? "data: [DONE]\n\n" : to_json(call_.events->object());
  }

 private:
  static void append(const ResponseEvents::Events& events, std::string& wire) {
    for (const json::object& event : events) {
      const json::string& type = event.at("type").get_string();
      wire += "event: ";
      wire.append(type.data(), type.size());
      wire += "\n";
      append_event(wire, to_json(event));
    }
  }

  ResponseCall call_;
  ResponseContext context_;
};

}  // namespace

ApiResult<ResponseCall> prepare_response(std::shared_ptr<const ServedModel> model,
                                         const json::object& body, const ResponseContext& context) {
  // read_generation() knows chat's names.
  json::object known = body;
  for (const char* name :
       {"stream_options", "n", "max_tokens", "max_completion_tokens", "text", "prompt"}) {
    known.erase(name);
  }
  Fields fields(body), chat_fields(known);
  refuse_unsupported(fields);
  Generation generation = read_generation(chat_fields, *model);
  if (const auto count = fields.integer("max_output_tokens", {1, INT32_MAX})) {
    generation.max_tokens = static_cast<uint32_t>(*count);
  }
  const auto logprobs = read_logprobs(fields);
  const bool generate = fields.boolean("generate").value_or(true) && !generation.cache.prewarm;
  ResponseCall call{.id = random_id("resp_"), .stream = generation.stream};
  call.store = fields.boolean("store").value_or(true);
  if (!fields.ok()) return fields.error();
  if (!chat_fields.ok()) return chat_fields.error();
  std::string chain;
  auto messages = read_conversation(body, fields, context, chain);
  if (!messages) return messages.error();
  call.messages = std::move(*messages);
  call.messages_bytes = json::serialize(call.messages).size();
  auto encoded = encode_prompt(*model, body, fields, call.messages, generation.cache);
  if (!encoded) {
    ApiError error = encoded.error();
    if (error.param == "messages") error.param = "input";
    return error;
  }
  auto request =
      make_request(generation, *model, std::move(encoded->tokens), std::nullopt, "input");
  if (!request) return request.error();
  call.request = std::move(*request);
  call.request.client_id = call.id;
  call.request.tenant = context.tenant;
  call.request.session = context.session;
  // Without a connection whose end would tell when a conversation is over, it is held for a while.
  if (context.session.empty() && call.store) call.request.chain = chain.empty() ? call.id : chain;
  call.request.logprobs = logprobs;
  add_breakpoints(call.request, encoded->breakpoints);
  if (!generate) {
    call.request.stop.max_tokens = 0;
    call.request.stop.min_tokens = 0;
  }
  call.events = std::make_unique<ResponseEvents>(
      call.id, response_echo(body, generation, call.store), logprobs.has_value(), std::move(model));
  const bool progress = fields.boolean("return_progress").value_or(false);
  if (progress) call.events->report_progress();
  call.request.report_waiting = progress || generation.stream;
  return call;
}

void keep_response(const ResponseCall& call, const ResponseContext& context) {
  const auto& store = call.store ? context.shared : context.connection;
  if (store == nullptr) return;
  auto kept = std::make_shared<StoredResponse>();
  kept->id = call.id;
  kept->tenant = context.tenant;
  kept->chain = call.request.chain;
  kept->messages = call.messages;
  const std::string& text = call.events->text();
  // A warm-up has no answer: what follows goes on right after its input.
  if (call.request.stop.max_tokens > 0) {
    kept->messages.push_back(json::object{{"role", "assistant"}, {"content", text}});
  }
  kept->bytes = 256 + call.messages_bytes + text.size();
  store->put(std::move(kept));
}

ApiResult<Job> prepare_response_job(std::shared_ptr<const ServedModel> model, std::string_view body,
                                    const ResponseContext& context) {
  auto object = read_json_object(body);
  if (!object) return object.error();
  auto call = prepare_response(model, *object, context);
  if (!call) return call.error();
  Job job{.id = call->id, .stream = call->stream, .model = std::move(model)};
  job.requests.push_back(call->request);
  job.reply = std::make_unique<ResponseReply>(std::move(*call), context);
  return job;
}

}  // namespace spillway::server
