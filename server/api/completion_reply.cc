#include "server/api/completion_reply.h"

#include <boost/json.hpp>
#include <ctime>

#include "server/api/json_text.h"

namespace spillway::server {

CompletionReply::CompletionReply(std::string id, Generation generation, CompletionOptions options,
                                 std::shared_ptr<const ServedModel> model,
                                 std::vector<CompletionPrompt> prompts)
    : id_(std::move(id)),
      generation_(std::move(generation)),
      options_(options),
      model_(std::move(model)),
      prompts_(std::move(prompts)),
      prompt_logprobs_(prompts_.size()),
      created_(std::time(nullptr)),
      usage_(model_->cache_page_tokens()) {
  for (size_t i = 0; i < prompts_.size() * generation_.choices; ++i) {
    choices_.push_back({.logprobs = CompletionLogprobs(*model_->tokenizer)});
  }
}

json::object CompletionReply::head() const {
  return {{"id", id_},
          {"object", "text_completion"},
          {"created", created_},
          {"model", generation_.model_name},
          {"system_fingerprint", model_->system_fingerprint}};
}

void CompletionReply::take_prompt_logprobs(uint32_t prompt,
                                           const std::vector<scheduler::OutputToken>& tokens) {
  auto& kept = prompt_logprobs_[prompt];
  kept.insert(kept.end(), tokens.begin(), tokens.end());
}

void CompletionReply::echo_prompt(uint32_t prompt, Choice& choice) {
  if (choice.prompt_sent) return;
  choice.prompt_sent = true;
  if (!options_.echo) return;
  choice.text += prompts_[prompt].text;
  if (generation_.return_token_ids) {
    for (const auto token : prompts_[prompt].tokens) choice.token_ids.push_back(token);
  }
  if (!options_.logprobs) return;
  // The first token follows nothing; the engine may or may not report it.
  const auto& scored = prompt_logprobs_[prompt];
  const auto& tokens = prompts_[prompt].tokens;
  const size_t unscored = tokens.size() - std::min(tokens.size(), scored.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0 || i < unscored) {
      scheduler::OutputToken first;
      first.token = tokens[i];
      choice.logprobs.add(first, false);
    } else {
      choice.logprobs.add(scored[i - unscored]);
    }
  }
}

void CompletionReply::append_tokens(const scheduler::Output& output, Choice& choice) {
  for (const scheduler::OutputToken& token : output.tokens) {
    if (options_.logprobs) choice.logprobs.add(token);
    if (generation_.return_token_ids) choice.token_ids.push_back(token.token);
  }
}

json::value CompletionReply::take_choice(size_t index, Choice& choice) {
  json::object out{{"index", index},
                   {"text", std::move(choice.text)},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr},
                   {"stop_reason", choice.stop_reason}};
  choice.text.clear();
  if (options_.logprobs) out["logprobs"] = choice.logprobs.take();
  if (choice.finish) out["finish_reason"] = finish_name(*choice.finish);
  if (generation_.return_token_ids) {
    out["token_ids"] = std::move(choice.token_ids);
    choice.token_ids = {};
    out["prompt_token_ids"] = json::value_from(prompts_[index / generation_.choices].tokens);
  }
  return out;
}

ApiResult<> CompletionReply::take(uint32_t index, const scheduler::Output& output,
                                  std::string& wire) {
  if (auto ended = check_finish(output); !ended) return ended.error();
  if (output.done) usage_.add(output.usage);
  take_prompt_logprobs(index, output.prompt_tokens);
  if (output.choice >= generation_.choices) return {};
  const size_t at = size_t{index} * generation_.choices + output.choice;
  Choice& choice = choices_[at];
  if (choice.finish) return {};
  if (!output.tokens.empty() || output.finish) echo_prompt(index, choice);
  choice.text += output.text;
  append_tokens(output, choice);
  choice.finish = output.finish;
  if (output.stop_string) choice.stop_reason = json::string(*output.stop_string);
  if (!generation_.stream) return {};
  const bool reports = options_.logprobs || generation_.return_token_ids;
  if (choice.text.empty() && !choice.finish && !(reports && !output.tokens.empty())) return {};
  json::object chunk = head();
  chunk["choices"] = json::array{take_choice(at, choice)};
  if (generation_.include_usage) chunk["usage"] = nullptr;
  append_event(wire, to_json(chunk));
  return {};
}

void CompletionReply::finish(std::string& wire) {
  json::object body = head();
  json::array choices;
  if (generation_.stream) {
    if (generation_.include_usage) {
      body["choices"] = std::move(choices);
      body["usage"] = usage_.chat();
      append_event(wire, to_json(body));
    }
    append_event(wire, "[DONE]");
    return;
  }
  for (size_t index = 0; index < choices_.size(); ++index) {
    echo_prompt(static_cast<uint32_t>(index / generation_.choices), choices_[index]);
    choices.push_back(take_choice(index, choices_[index]));
  }
  body["choices"] = std::move(choices);
  body["usage"] = usage_.chat();
  wire += to_json(body);
}

}  // namespace spillway::server
