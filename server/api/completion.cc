#include "server/api/completion.h"

#include <boost/json.hpp>

#include "server/api/completion_reply.h"
#include "server/api/generation.h"
#include "server/api/json_reader.h"
#include "server/api/random_id.h"

namespace spillway::server {
namespace {

constexpr size_t kPromptsMax = 2048;
constexpr uint32_t kDefaultTokens = 16;  // OpenAI's and vLLM's

ApiResult<CompletionPrompt> from_tokens(const ServedModel& model, const json::array& list,
                                        const std::string& param) {
  auto tokens = read_tokens(list, param, model.tokenizer->vocabulary());
  if (!tokens) return tokens.error();
  return CompletionPrompt{.text = model.tokenizer->decode(*tokens, true), .tokens = *tokens};
}

CompletionPrompt from_text(const ServedModel& model, const json::string& text, bool add_special) {
  CompletionPrompt prompt{.text = std::string(text.data(), text.size())};
  prompt.tokens =
      model.tokenizer->encode(prompt.text, {.add_special = add_special, .parse_special = true});
  return prompt;
}

ApiResult<std::vector<CompletionPrompt>> read_prompts(const json::value* prompt,
                                                      const ServedModel& model, bool add_special) {
  std::vector<CompletionPrompt> out;
  if (prompt == nullptr) return bad_field("prompt", "'prompt' is missing");
  if (const json::string* text = prompt->if_string()) {
    out.push_back(from_text(model, *text, add_special));
    return out;
  }
  const json::array* list = prompt->if_array();
  if (list == nullptr) {
    return bad_field("prompt",
                     "'prompt' must be a string, a list of strings, a list of token ids "
                     "or a list of those");
  }
  if (list->empty()) return bad_field("prompt", "'prompt' is empty");
  if (list->front().is_number()) {
    auto one = from_tokens(model, *list, "prompt");
    if (!one) return one.error();
    out.push_back(std::move(*one));
    return out;
  }
  if (list->size() > kPromptsMax) {
    return bad_field("prompt",
                     "'prompt' may hold at most " + std::to_string(kPromptsMax) + " prompts");
  }
  for (const json::value& item : *list) {
    const std::string param = "prompt[" + std::to_string(out.size()) + "]";
    if (const json::string* text = item.if_string()) {
      out.push_back(from_text(model, *text, add_special));
    } else if (const json::array* ids = item.if_array()) {
      auto one = from_tokens(model, *ids, param);
      if (!one) return one.error();
      out.push_back(std::move(*one));
    } else {
      return bad_field(param, "'" + param + "' must be a string or a list of token ids, got " +
                                  std::string(kind_name(item)));
    }
  }
  return out;
}

// An empty prompt is the beginning of a text: BOS, where the model has one.
ApiResult<> fill_empty(CompletionPrompt& prompt, const ServedModel& model) {
  if (!prompt.tokens.empty()) return {};
  if (model.tokenizer->bos() < 0) {
    return bad_field("prompt",
                     "'prompt' has no tokens and this model has no beginning-of-text "
                     "token to start from");
  }
  prompt.tokens.push_back(model.tokenizer->bos());
  return {};
}

CompletionOptions read_options(Fields& fields, const Generation& generation) {
  CompletionOptions options;
  fields.flag("echo", options.echo);
  if (const auto top = fields.integer("logprobs", {0, 20})) {
    options.logprobs = static_cast<uint32_t>(*top);
  }
  if (const auto suffix = fields.text("suffix", size_t(-1)); suffix && !suffix->empty()) {
    fields.fail("suffix", "is not supported: this model cannot fill in the middle", "unsupported");
  }
  if (fields.ok() && generation.max_tokens == 0u && !options.echo) {
    fields.fail("max_tokens", "can only be 0 together with 'echo': true");
  }
  return options;
}

}  // namespace

ApiResult<std::vector<model::TokenId>> read_one_prompt(const json::value& prompt,
                                                       const ServedModel& model, bool add_special) {
  auto prompts = read_prompts(&prompt, model, add_special);
  if (!prompts) return prompts.error();
  if (prompts->size() != 1) return bad_field("prompt", "'prompt' must be one prompt");
  return std::move(prompts->front().tokens);
}

ApiResult<Job> prepare_completion(std::shared_ptr<const ServedModel> model, std::string_view body,
                                  const std::string& tenant) {
  auto object = read_json_object(body);
  if (!object) return object.error();
  Fields fields(*object);
  Generation generation = read_generation(fields, *model);
  CompletionOptions options = read_options(fields, generation);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  if (!fields.ok()) return fields.error();
  auto prompts = read_prompts(fields.find("prompt"), *model, add_special);
  if (!prompts) return prompts.error();
  if (prompts->size() * generation.choices > kPromptsMax) {
    return bad_field(
        "n", "'n' times the number of prompts may be at most " + std::to_string(kPromptsMax));
  }
  Job job{.id = random_id("cmpl-"), .stream = generation.stream, .model = model};
  for (CompletionPrompt& prompt : *prompts) {
    if (auto filled = fill_empty(prompt, *model); !filled) return filled.error();
    auto request = make_request(generation, *model, prompt.tokens, kDefaultTokens, "prompt");
    if (!request) return request.error();
    request->client_id = job.id;
    request->tenant = tenant;
    request->logprobs = options.logprobs;
    request->report_waiting = generation.stream;
    if (options.echo) request->prompt_logprobs = options.logprobs;
    job.requests.push_back(std::move(*request));
  }
  job.reply = std::make_unique<CompletionReply>(job.id, std::move(generation), options,
                                                std::move(model), std::move(*prompts));
  return job;
}

}  // namespace spillway::server
