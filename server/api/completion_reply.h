// The answer to /v1/completions, whole or as a stream.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/generation.h"
#include "server/api/job.h"
#include "server/api/logprobs.h"
#include "server/api/usage.h"

namespace spillway::server {

struct CompletionPrompt {
  std::string text;  // what `echo` sends back
  std::vector<model::TokenId> tokens = {};
};

struct CompletionOptions {
  bool echo = false;
  std::optional<uint32_t> logprobs;
};

class CompletionReply final : public Reply {
 public:
  CompletionReply(std::string id, Generation generation, CompletionOptions options,
                  std::shared_ptr<const ServedModel> model, std::vector<CompletionPrompt> prompts);

  ApiResult<> take(uint32_t index, const scheduler::Output& output, std::string& wire) override;
  void finish(std::string& wire) override;

 private:
  struct Choice {
    std::string text = {};
    CompletionLogprobs logprobs;
    json::array token_ids = {};
    std::optional<scheduler::FinishReason> finish = {};
    json::value stop_reason = {};
    bool prompt_sent = false;
  };

  json::object head() const;
  // Puts the prompt before the first text of a choice.
  void echo_prompt(uint32_t prompt, Choice& choice);
  void take_prompt_logprobs(uint32_t prompt, const std::vector<scheduler::OutputToken>& tokens);
  void append_tokens(const scheduler::Output& output, Choice& choice);
  json::value take_choice(size_t index, Choice& choice);

  std::string id_;
  Generation generation_;
  CompletionOptions options_;
  std::shared_ptr<const ServedModel> model_;
  std::vector<CompletionPrompt> prompts_;
  std::vector<std::vector<scheduler::OutputToken>> prompt_logprobs_;  // by prompt
  int64_t created_;
  std::vector<Choice> choices_;  // (prompt, choice)
  UsageSum usage_;
};

}  // namespace spillway::server
