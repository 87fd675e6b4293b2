#include "server/api/chat.h"

#include <boost/json.hpp>
#include <ctime>

#include "server/api/chat_prompt.h"
#include "server/api/generation.h"
#include "server/api/json_reader.h"
#include "server/api/json_text.h"
#include "server/api/logprobs.h"
#include "server/api/random_id.h"
#include "server/api/usage.h"

namespace spillway::server {
namespace {

struct Choice {
  std::string text;
  json::array logprobs;
  json::array token_ids;
  std::optional<scheduler::FinishReason> finish;
  json::value stop_reason;  // the stop string, or null
  bool opened = false;      // its role was sent
};

class ChatReply final : public Reply {
 public:
  ChatReply(std::string id, Generation generation, bool logprobs,
            std::shared_ptr<const ServedModel> model, std::vector<model::TokenId> prompt)
      : id_(std::move(id)),
        generation_(std::move(generation)),
        logprobs_(logprobs),
        model_(std::move(model)),
        prompt_(std::move(prompt)),
        created_(std::time(nullptr)),
        choices_(generation_.choices),
        usage_(model_->cache_page_tokens()) {}

  ApiResult<> take(uint32_t, const scheduler::Output& output, std::string& wire) override {
    if (auto ended = check_finish(output); !ended) return ended.error();
    if (output.done) usage_.add(output.usage);
    if (output.choice >= choices_.size()) return {};
    Choice& choice = choices_[output.choice];
    if (generation_.stream) {
      stream_output(output, choice, wire);
      return {};
    }
    choice.text += output.text;
    append_tokens(output, choice.logprobs, choice.token_ids);
    close(output, choice);
    return {};
  }

  void finish(std::string& wire) override {
    if (generation_.stream) {
      if (generation_.include_usage) {
        json::object chunk = head("chat.completion.chunk");
        chunk["choices"] = json::array{};
        chunk["usage"] = usage_.chat();
        append_event(wire, to_json(chunk));
      }
      append_event(wire, "[DONE]");
      return;
    }
    json::object body = head("chat.completion");
    json::array choices;
    for (size_t index = 0; index < choices_.size(); ++index) {
      choices.push_back(whole_choice(index, choices_[index]));
    }
    body["choices"] = std::move(choices);
    body["usage"] = usage_.chat();
    if (generation_.return_token_ids) body["prompt_token_ids"] = json::value_from(prompt_);
    wire += to_json(body);
  }

 private:
  json::object head(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", generation_.model_name},
            {"system_fingerprint", model_->system_fingerprint}};
  }

  void append_tokens(const scheduler::Output& output, json::array& logprobs, json::array& ids) {
    if (logprobs_) {
      for (json::value& entry : chat_logprobs(*model_->tokenizer, output.tokens)) {
        logprobs.push_back(std::move(entry));
      }
    }
    if (generation_.return_token_ids) {
      for (const auto& token : output.tokens) ids.push_back(token.token);
    }
  }

  static void close(const scheduler::Output& output, Choice& choice) {
    if (!output.finish) return;
    choice.finish = output.finish;
    if (output.stop_string) choice.stop_reason = json::string(*output.stop_string);
  }

  json::value whole_choice(size_t index, Choice& choice) {
    json::object out{
        {"index", index},
        {"message",
         {{"role", "assistant"}, {"content", std::move(choice.text)}, {"refusal", nullptr}}},
        {"logprobs", nullptr},
        {"finish_reason", finish_name(choice.finish.value_or(scheduler::FinishReason::kLength))},
        {"stop_reason", choice.stop_reason}};
    if (logprobs_) {
      out["logprobs"] = json::object{{"content", std::move(choice.logprobs)}, {"refusal", nullptr}};
    }
    if (generation_.return_token_ids) out["token_ids"] = std::move(choice.token_ids);
    return out;
  }

  void send(uint32_t index, json::object delta, json::object extra, std::string& wire) {
    json::object choice{{"index", index},
                        {"delta", std::move(delta)},
                        {"logprobs", nullptr},
                        {"finish_reason", nullptr}};
    for (auto& member : extra) choice[member.key()] = std::move(member.value());
    json::object chunk = head("chat.completion.chunk");
    chunk["choices"] = json::array{std::move(choice)};
    if (generation_.include_usage) chunk["usage"] = nullptr;
    if (generation_.return_token_ids && !prompt_sent_) {
      chunk["prompt_token_ids"] = json::value_from(prompt_);
      prompt_sent_ = true;
    }
    append_event(wire, to_json(chunk));
  }

  void stream_output(const scheduler::Output& output, Choice& choice, std::string& wire) {
    if (!choice.opened) {
      choice.opened = true;
      send(output.choice, {{"role", "assistant"}, {"content", ""}}, {}, wire);
    }
    json::array logprobs, ids;
    append_tokens(output, logprobs, ids);
    if (!output.text.empty() || !logprobs.empty() || !ids.empty()) {
      json::object extra;
      if (logprobs_) {
        extra["logprobs"] = json::object{{"content", std::move(logprobs)}, {"refusal", nullptr}};
      }
      if (generation_.return_token_ids) extra["token_ids"] = std::move(ids);
      send(output.choice, {{"content", output.text}}, std::move(extra), wire);
    }
    if (!output.finish || choice.finish) return;
    close(output, choice);
    send(output.choice, {},
         {{"finish_reason", finish_name(*choice.finish)}, {"stop_reason", choice.stop_reason}},
         wire);
  }

  std::string id_;
  Generation generation_;
  bool logprobs_;
  std::shared_ptr<const ServedModel> model_;
  std::vector<model::TokenId> prompt_;
  int64_t created_;
  std::vector<Choice> choices_;
  UsageSum usage_;
  bool prompt_sent_ = false;
};

// logprobs: true, top_logprobs: k. Nothing when not asked for.
std::optional<uint32_t> read_chat_logprobs(Fields& fields) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", {0, 20});
  if (top && *top > 0 && !wanted) {
    fields.fail("top_logprobs", "needs 'logprobs': true");
  }
  if (!wanted) return std::nullopt;
  return static_cast<uint32_t>(top.value_or(0));
}

}  // namespace

ApiResult<Job> prepare_chat(std::shared_ptr<const ServedModel> model, std::string_view body,
                            const std::string& tenant) {
  auto object = read_json_object(body);
  if (!object) return object.error();
  Fields fields(*object);
  Generation generation = read_generation(fields, *model);
  const auto logprobs = read_chat_logprobs(fields);
  if (fields.ok() && generation.max_tokens == 0u) {
    fields.fail("max_tokens", "must be at least 1");
  }
  if (fields.boolean("echo").value_or(false)) {
    fields.fail("echo", "is not supported for chat", "unsupported");
  }
  if (!fields.ok()) return fields.error();
  auto prompt = read_chat_prompt(*object, *model);
  if (!prompt) return prompt.error();
  auto encoded = encode_chat(*model, std::move(*prompt), generation.cache);
  if (!encoded) return encoded.error();
  auto request = make_request(generation, *model, encoded->tokens, std::nullopt, "messages");
  if (!request) return request.error();
  Job job{.id = random_id("chatcmpl-"), .stream = generation.stream, .model = model};
  request->client_id = job.id;
  request->tenant = tenant;
  request->logprobs = logprobs;
  request->report_waiting = generation.stream;
  add_breakpoints(*request, encoded->breakpoints);
  job.requests.push_back(std::move(*request));
  job.reply = std::make_unique<ChatReply>(job.id, std::move(generation), logprobs.has_value(),
                                          std::move(model), std::move(encoded->tokens));
  return job;
}

}  // namespace spillway::server
