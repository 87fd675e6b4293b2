#include "server/api/pins.h"

#include <boost/json.hpp>
#include <ctime>

#include "server/api/chat_prompt.h"
#include "server/api/completion.h"
#include "server/api/generation.h"
#include "server/api/json_reader.h"
#include "server/api/json_text.h"
#include "server/api/random_id.h"
#include "server/api/response_items.h"
#include "server/api/usage.h"

namespace spillway::server {
namespace {

constexpr int64_t kTtlDefault = 60 * 60;
constexpr int64_t kTtlMax = 7 * 24 * 60 * 60;

// Seconds, or OpenAI's words for them.
std::chrono::seconds read_ttl(Fields& fields) {
  const json::value* value = fields.find("ttl");
  if (value != nullptr && *value == "30m") return std::chrono::minutes(30);
  if (value != nullptr && *value == "12h") return std::chrono::hours(12);
  return std::chrono::seconds(fields.integer("ttl", {1, kTtlMax}).value_or(kTtlDefault));
}

// A Responses request's input as a chat's messages.
ApiResult<json::object> as_chat(const json::object& body, Fields& fields) {
  json::object chat = body;
  const json::value* input = fields.find("input");
  if (input == nullptr) return chat;
  auto messages = read_response_input(*input);
  if (!messages) return messages.error();
  if (const auto instructions = fields.text("instructions", size_t{4} << 20)) {
    messages->insert(messages->begin(),
                     json::object{{"role", "system"}, {"content", *instructions}});
  }
  if (const json::array* tools = fields.array("tools")) {
    auto read = read_response_tools(*tools);
    if (!read) return read.error();
    chat["tools"] = std::move(*read);
  }
  chat["messages"] = std::move(*messages);
  return chat;
}

ApiResult<std::vector<model::TokenId>> prompt_of(const ServedModel& model, const json::object& body,
                                                 Fields& fields) {
  const int forms = fields.has("messages") + fields.has("input") + fields.has("prompt");
  if (forms != 1) {
    return bad_field("messages",
                     "exactly one of 'messages', 'input' and 'prompt' says what to pin");
  }
  if (const json::value* prompt = fields.find("prompt")) {
    return read_one_prompt(*prompt, model, fields.boolean("add_special_tokens").value_or(true));
  }
  auto chat = as_chat(body, fields);
  if (!chat) return chat.error();
  // What comes after it is a turn that nobody knows yet.
  if (!fields.has("add_generation_prompt")) (*chat)["add_generation_prompt"] = false;
  auto prompt = read_chat_prompt(*chat, model);
  if (!prompt) return prompt.error();
  return encode_chat(model, std::move(*prompt));
}

json::object pin_object(const std::string& model, const scheduler::PinInfo& pin) {
  return {{"id", pin.id},
          {"object", "cache.pin"},
          {"model", model},
          {"tokens", pin.tokens},
          {"pages", pin.pages},
          {"device_tokens", pin.device_tokens},
          {"expires_at", std::time(nullptr) + static_cast<int64_t>(pin.seconds_left)}};
}

ApiError refusal(const scheduler::PinOutcome& outcome) {
  const std::string wanted = "it would take " + std::to_string(outcome.pages) + " pages";
  const std::string limit = std::to_string(outcome.limit_pages) + " may be pinned";
  switch (outcome.result) {
    case scheduler::PinResult::kTooLarge:
      return {.message = wanted + ", and " + limit +
                         ": pin less, or start the server with a larger --kv-pin-limit",
              .code = "pin_too_large"};
    case scheduler::PinResult::kNoRoom:
      return {.status = 409,
              .message = wanted + ", " + limit + " and " + std::to_string(outcome.pinned_pages) +
                         " are: DELETE a pin, or start the server with a larger --kv-pin-limit",
              .code = "pin_limit_reached"};
    case scheduler::PinResult::kLost:
    case scheduler::PinResult::kPinned:
      break;
  }
  return {.status = 503,
          .type = "service_unavailable_error",
          .message = "its pages had to make room before they could be pinned: try again",
          .code = "pin_lost"};
}

class PinReply final : public Reply {
 public:
  PinReply(std::string id, std::string model_name, uint32_t page_tokens, std::chrono::seconds ttl)
      : id_(std::move(id)), model_name_(std::move(model_name)), ttl_(ttl), usage_(page_tokens) {}

  ApiResult<> take(uint32_t, const scheduler::Output& output, std::string&) override {
    if (output.finish) finish_ = output;
    if (!output.done) return {};
    if (output.pin && output.pin->result != scheduler::PinResult::kPinned) {
      return refusal(*output.pin);
    }
    if (auto ended = check_finish(finish_); !ended) return ended.error();
    if (!output.pin) return refusal({});
    pin_ = *output.pin;
    usage_.add(output.usage);
    return {};
  }

  void finish(std::string& wire) override {
    json::object body = pin_object(model_name_, {.id = id_,
                                                 .tokens = pin_.tokens,
                                                 .pages = pin_.pages,
                                                 .device_tokens = pin_.tokens,
                                                 .seconds_left = double(ttl_.count())});
    body["usage"] = usage_.chat();
    wire += to_json(body);
  }

 private:
  std::string id_, model_name_;
  std::chrono::seconds ttl_;
  scheduler::Output finish_;
  scheduler::PinOutcome pin_;
  UsageSum usage_;
};

}  // namespace

ApiResult<Job> prepare_pin(std::shared_ptr<const ServedModel> model, std::string_view body,
                           const std::string& tenant) {
  auto object = read_json_object(body);
  if (!object) return object.error();
  Fields fields(*object);
  Generation generation;
  check_model_name(fields, *model, generation.model_name);
  if (auto salt = fields.text("cache_salt", 1024)) {
    if (salt->empty()) fields.fail("cache_salt", "must have 1 to 1024 bytes");
    generation.cache_salt = std::move(*salt);
  }
  const std::chrono::seconds ttl = read_ttl(fields);
  if (!fields.ok()) return fields.error();
  if (!model->prefix_caching) {
    return ApiError{.status = 400,
                    .message =
                        "this server was started with --no-enable-prefix-caching: there is "
                        "nothing to pin in",
                    .code = "unsupported"};
  }
  auto prompt = prompt_of(*model, *object, fields);
  if (!fields.ok()) return fields.error();
  if (!prompt) return prompt.error();
  if (prompt->size() < model->page_tokens) {
    return bad_field("messages",
                     "only whole pages of " + std::to_string(model->page_tokens) +
                         " tokens are kept, and this has " + std::to_string(prompt->size()) +
                         " tokens",
                     "pin_too_short");
  }
  generation.max_tokens = 0;
  auto request = make_request(generation, *model, std::move(*prompt), 0, "messages");
  if (!request) return request.error();
  Job job{.id = random_id("pin_"), .stream = false, .model = model};
  request->client_id = job.id;
  request->tenant = tenant;
  request->pin = scheduler::PinOrder{.id = job.id, .ttl = ttl};
  job.requests.push_back(std::move(*request));
  job.reply = std::make_unique<PinReply>(job.id, std::move(generation.model_name),
                                         model->cache_page_tokens(), ttl);
  return job;
}

ApiResult<std::string> pins_body(const ServedModel& model, const scheduler::PinList& list,
                                 std::string_view id) {
  const std::string& name = model.names.front();
  json::array data;
  for (const scheduler::PinInfo& pin : list.pins) {
    if (!id.empty() && pin.id == id) return to_json(pin_object(name, pin));
    if (id.empty()) data.push_back(pin_object(name, pin));
  }
  if (!id.empty()) return no_such_pin(id);
  return to_json(json::object{{"object", "list"},
                              {"data", std::move(data)},
                              {"pinned_pages", list.pinned_pages},
                              {"limit_pages", list.limit_pages}});
}

std::string pin_deleted_body(std::string_view id) {
  return to_json(json::object{{"id", id}, {"object", "cache.pin.deleted"}, {"deleted", true}});
}

ApiError no_such_pin(std::string_view id) {
  return {.status = 404,
          .type = "not_found_error",
          .message = "there is no pin '" + std::string(id.substr(0, 128)) +
                     "' (any more): pins end at their ttl, and when the cache is reset",
          .code = "pin_not_found"};
}

}  // namespace spillway::server
