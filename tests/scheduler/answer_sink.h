// What a client gets of a request to the real engine, to the last bit.
#pragma once

#include <bit>
#include <cstdint>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/request.h"

namespace spillway::scheduler {

struct AnswerChoice {
  std::vector<model::TokenId> tokens;
  std::vector<uint32_t> logprobs;  // bits: of the drawn token, then of the most likely, for each

  bool operator==(const AnswerChoice&) const = default;
};

struct Answer {
  std::map<uint32_t, AnswerChoice> choices;
  FinishReason finish = FinishReason::kError;
  std::string error;
  Usage usage;

  const std::vector<model::TokenId>& tokens() const { return choices.at(0).tokens; }
};

// Filled by the engine's thread, awaited by the test's.
class AnswerSink final : public OutputSink {
 public:
  void on_output(Output output) override {
    AnswerChoice& choice = answer_.choices[output.choice];
    const auto add = [&](float logprob) {
      choice.logprobs.push_back(std::bit_cast<uint32_t>(logprob));
    };
    for (const OutputToken& token : output.tokens) {
      choice.tokens.push_back(token.token);
      add(token.logprob);
      for (const model::TokenLogprob& top : token.top) add(top.logprob);
    }
    if (output.finish) answer_.finish = *output.finish;
    if (!output.error.empty()) answer_.error = std::move(output.error);
    if (!output.done) return;
    answer_.usage = output.usage;
    done_.set_value();
  }
  // The whole answer, once there is no more to come.
  const Answer& wait() const {
    ended_.wait();
    return answer_;
  }

 private:
  Answer answer_;
  std::promise<void> done_;
  const std::shared_future<void> ended_ = done_.get_future().share();
};

}  // namespace spillway::scheduler
