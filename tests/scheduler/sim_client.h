// A client of the simulation: it takes an answer as it comes and knows what it must be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "scheduler/request.h"
#include "tests/sim/fake_model.h"

namespace spillway::scheduler {

inline constexpr uint32_t kContext = 400;

struct Answer {
  std::vector<model::TokenId> tokens;
  std::string text;
  FinishReason finish = FinishReason::kError;
};

// What a choice's answer must be, from the tokens alone.
inline Answer expected_answer(const sim::FakeTokenizer& tokenizer, const Request& request,
                              uint32_t choice) {
  Answer answer;
  answer.finish = FinishReason::kLength;
  if (request.stop.max_tokens == 0) return answer;
  size_t passed_over = 0;  // text up to the last stop string that came too early
  uint64_t chain = 0;
  for (model::TokenId token : request.prompt) chain = sim::chain_next(chain, token);
  std::vector<model::TokenId> banned;
  if (!request.stop.ignore_eos) banned.push_back(0);
  for (;;) {
    const bool too_few = answer.tokens.size() < request.stop.min_tokens;
    const model::TokenId token = sim::fake_draw(
        chain, request.sampling.seed, choice,
        too_few ? std::span<const model::TokenId>(banned) : std::span<const model::TokenId>());
    answer.tokens.push_back(token);
    if (token == 0 && !request.stop.ignore_eos) {
      answer.finish = FinishReason::kStop;
      return answer;
    }
    answer.text += tokenizer.piece(token, false);
    for (const std::string& stop : request.stop.stop_strings) {
      if (!std::string_view(answer.text).substr(passed_over).ends_with(stop)) continue;
      if (answer.tokens.size() < request.stop.min_tokens) {
        passed_over = answer.text.size();
        break;
      }
      answer.text.resize(answer.text.size() - stop.size());
      answer.finish = FinishReason::kStop;
      return answer;
    }
    if (answer.tokens.size() >= request.stop.max_tokens ||
        request.prompt.size() + answer.tokens.size() >= kContext) {
      return answer;
    }
    chain = sim::chain_next(chain, token);
  }
}

class Client final : public OutputSink {
 public:
  // `error`: what a request that ends with one is told, or part of it.
  Client(Request request, const Clock& clock, std::string error = sim::FakeRunner::kFailure)
      : request_(std::move(request)), clock_(clock), error_(std::move(error)) {}

  void on_output(Output output) override {
    ASSERT_FALSE(done_);
    if (output.waiting) {
      ASSERT_TRUE(request_.report_waiting);
      waiting_.push_back(*output.waiting);
      return;
    }
    Answer& answer = answers_[output.choice];
    if (output.done) {
      done_ = true;
      usage_ = output.usage;
      pin_ = output.pin;
      return;
    }
    ASSERT_FALSE(finished_[output.choice]);
    for (const OutputToken& token : output.tokens) answer.tokens.push_back(token.token);
    if (!output.tokens.empty()) {
      const Clock::TimePoint now = clock_.now();
      if (last_token_) longest_gap_ = std::max(longest_gap_, now - *last_token_);
      last_token_ = now;
    }
    answer.text += output.text;
    if (output.finish) {
      finished_[output.choice] = true;
      ASSERT_EQ(output.error.empty(), *output.finish != FinishReason::kError);
      if (!output.error.empty()) ASSERT_NE(output.error.find(error_), std::string::npos);
      answer.finish = *output.finish;
    }
    scores_ += output.prompt_tokens.size();
  }

  void verify(const sim::FakeTokenizer& tokenizer) const {
    ASSERT_TRUE(done_);
    ASSERT_EQ(finished_.size(), request_.choices);
    uint64_t completion = 0;
    for (const auto& [choice, answer] : answers_) {
      completion += answer.tokens.size();
      if (!finished_.contains(choice)) continue;  // the entry that `done` made
      const Answer expected = expected_answer(tokenizer, request_, choice);
      if (answer.finish == FinishReason::kCancelled || answer.finish == FinishReason::kDeadline ||
          answer.finish == FinishReason::kError) {
        ASSERT_LE(answer.tokens.size(), expected.tokens.size());
        ASSERT_TRUE(
            std::equal(answer.tokens.begin(), answer.tokens.end(), expected.tokens.begin()));
        continue;
      }
      ASSERT_EQ(answer.tokens, expected.tokens);
      ASSERT_EQ(answer.text, expected.text);
      ASSERT_EQ(answer.finish, expected.finish);
    }
    ASSERT_EQ(usage_.completion_tokens, completion);
    ASSERT_EQ(usage_.prompt_tokens, request_.prompt.size());
    ASSERT_LT(usage_.cached_tokens, request_.prompt.size());
    if (request_.prompt_logprobs) {
      ASSERT_EQ(usage_.cached_tokens, 0u);
    }
  }

  bool done() const { return done_; }
  bool failed(uint32_t choice = 0) const {
    const auto found = answers_.find(choice);
    return done_ && finished_.contains(choice) && found->second.finish == FinishReason::kError;
  }
  Clock::Duration longest_gap() const { return longest_gap_; }  // between two tokens
  // Of the last token; none yet: empty.
  std::optional<Clock::TimePoint> last_token() const { return last_token_; }
  const Usage& usage() const { return usage_; }
  const Request& request() const { return request_; }
  const std::optional<PinOutcome>& pin() const { return pin_; }
  const std::vector<Waiting>& waiting() const { return waiting_; }

 private:
  Request request_;
  const Clock& clock_;
  const std::string error_;
  std::optional<Clock::TimePoint> last_token_;
  Clock::Duration longest_gap_{};
  std::map<uint32_t, Answer> answers_;
  std::map<uint32_t, bool> finished_;
  bool done_ = false;
  uint64_t scores_ = 0;
  Usage usage_;
  std::optional<PinOutcome> pin_;
  std::vector<Waiting> waiting_;
};

}  // namespace spillway::scheduler
