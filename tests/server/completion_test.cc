#include "server/api/completion.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "server/api/json_reader.h"
#include "tests/server/fake_model.h"

namespace spillway::server {
namespace {

class Completion : public testing::Test {
 protected:
  ApiResult<Job> prepare(const std::string& body) { return prepare_completion(model_, body, "t"); }

  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::shared_ptr<const ServedModel> model_ = make_fake_model(backend_);
};

TEST_F(Completion, takes_prompts_in_four_forms) {
  const struct {
    const char* prompt;
    std::vector<std::string> texts;
  } cases[] = {
      {R"("ab")", {"<bos>ab"}},
      {R"(["ab","c"])", {"<bos>ab", "<bos>c"}},
      {R"([97,98])", {"ab"}},
      {R"([[97],[98,99]])", {"a", "bc"}},
      {R"("<|im_start|>x")", {"<bos><|im_start|>x"}},
      {R"([])", {}},
      {R"("")", {"<bos>"}},
  };
  for (const auto& c : cases) {
    const auto job = prepare("{\"prompt\":" + std::string(c.prompt) + "}");
    ASSERT_EQ(job.has_value(), !c.texts.empty()) << c.prompt;
    if (!job) continue;
    ASSERT_EQ(job->requests.size(), c.texts.size());
    for (size_t i = 0; i < c.texts.size(); ++i) {
      EXPECT_EQ(model_->tokenizer->decode(job->requests[i].prompt, true), c.texts[i]);
      EXPECT_EQ(job->requests[i].stop.max_tokens, 16u);
      EXPECT_EQ(job->requests[i].tenant, "t");
    }
  }
}

// case A6
TEST_F(Completion, wrong_values_are_refused_with_their_field) {
  const struct {
    const char* body;
    const char* param;
  } cases[] = {
      {R"({})", "prompt"},
      {R"({"prompt":null})", "prompt"},
      {R"({"prompt":7})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":[259]})", "prompt"},
      {R"({"prompt":[1.5]})", "prompt"},
      {R"({"prompt":[[1],["a"]]})", "prompt[1]"},
      {R"({"prompt":["a",{}]})", "prompt[1]"},
      {R"({"prompt":"a","logprobs":-1})", "logprobs"},
      {R"({"prompt":"a","logprobs":true})", "logprobs"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens"},
      {R"({"prompt":"a","suffix":"b"})", "suffix"},
      {R"({"prompt":"a","best_of":5})", "best_of"},
      {R"({"prompt":"a","echo":"x"})", "echo"},
  };
  for (const auto& c : cases) {
    const auto job = prepare(c.body);
    ASSERT_FALSE(job) << c.body;
    EXPECT_EQ(job.error().param, c.param) << c.body;
    EXPECT_EQ(job.error().status, 400);
  }
  EXPECT_EQ(prepare("[1]").error().code, "invalid_json");
}

// case A7
TEST_F(Completion, a_prompt_may_fill_the_context_only_without_an_answer) {
  std::string ids = "0";
  for (int i = 1; i < 4096; ++i) ids += ",0";
  EXPECT_FALSE(prepare("{\"prompt\":[" + ids + "]}"));
  EXPECT_TRUE(prepare("{\"prompt\":[" + ids + "],\"max_tokens\":0,\"echo\":true}"));
  const auto over = prepare("{\"prompt\":[" + ids + ",0],\"max_tokens\":0,\"echo\":true}");
  EXPECT_EQ(over.error().code, "context_length_exceeded");
  EXPECT_NE(over.error().message.find("4097"), std::string::npos);
}

TEST_F(Completion, echo_with_logprobs_scores_the_prompt_as_lm_evaluation_harness_reads_it) {
  auto job = prepare(R"({"prompt":[97,98,99],"max_tokens":0,"echo":true,"logprobs":1})");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->requests[0].prompt_logprobs, 1u);
  EXPECT_EQ(job->requests[0].stop.max_tokens, 0u);
  scheduler::Output scores;
  for (const int token : {97, 98, 99}) {
    scores.prompt_tokens.push_back({.token = token, .logprob = -0.5f, .top = {{100, -0.1f}}});
  }
  scheduler::Output last;
  last.finish = scheduler::FinishReason::kLength;
  last.done = true;
  std::string wire;
  ASSERT_TRUE(job->reply->take(0, scores, wire));
  ASSERT_TRUE(job->reply->take(0, last, wire));
  job->reply->finish(wire);
  const auto body = json::parse(wire);
  const auto& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "abc");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
  const auto& logprobs = choice.at("logprobs");
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_DOUBLE_EQ(logprobs.at("token_logprobs").at(2).as_double(), -0.5);
  EXPECT_EQ(logprobs.at("tokens").at(2).as_string(), "c");
  EXPECT_EQ(logprobs.at("top_logprobs").at(2).as_object().size(), 2u);
  EXPECT_EQ(logprobs.at("text_offset").at(2).as_int64(), 2);
}

TEST_F(Completion, indexes_run_over_prompts_and_choices) {
  auto job = prepare(R"({"prompt":["a","b"],"n":2,"stream":true})");
  ASSERT_TRUE(job);
  std::string wire;
  for (const uint32_t prompt : {1u, 0u}) {
    for (const uint32_t choice : {0u, 1u}) {
      scheduler::Output output;
      output.choice = choice;
      output.text = "x";
      output.tokens.push_back({.token = 'x', .logprob = 0, .top = {}});
      output.finish = scheduler::FinishReason::kStop;
      output.done = choice == 1;
      ASSERT_TRUE(job->reply->take(prompt, output, wire));
    }
  }
  job->reply->finish(wire);
  for (const char* index : {"\"index\":0", "\"index\":1", "\"index\":2", "\"index\":3"}) {
    const size_t at = wire.find(index);
    ASSERT_NE(at, std::string::npos) << index;
    EXPECT_EQ(wire.find(index, at + 1), std::string::npos) << index;
  }
  EXPECT_LT(wire.find("\"index\":2"), wire.find("\"index\":0"));
  EXPECT_TRUE(wire.ends_with("data: [DONE]\n\n"));
}

}  // namespace
}  // namespace spillway::server
