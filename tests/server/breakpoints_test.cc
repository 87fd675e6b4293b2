// Where static parts of prompts end, in tokens, and what else a request says of caching.
#include "server/api/breakpoints.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "server/api/chat.h"
#include "server/api/completion.h"
#include "server/api/json_reader.h"
#include "server/api/responses.h"
#include "tests/server/fake_model.h"

namespace spillway::server {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr const char* kMark = R"("prompt_cache_breakpoint":{"mode":"explicit"})";

std::string part(const std::string& text, bool marked, const std::string& type = "text") {
  return R"({"type":")" + type + R"(","text":")" + text + "\"" +
         (marked ? std::string(",") + kMark : "") + "}";
}

class Breakpoints : public testing::Test {
 protected:
  ApiResult<Job> chat(const std::string& content, const std::string& fields = "") {
    return prepare_chat(model_,
                        R"({"messages":[{"role":"user","content":)" + content + "}]" +
                            (fields.empty() ? "" : "," + fields) + "}",
                        "");
  }
  ApiResult<ResponseCall> response(const std::string& body) {
    return prepare_response(model_, *read_json_object(body), context_);
  }
  // The prompt's text before the request's breakpoint `index`.
  std::string before(const scheduler::Request& request, size_t index) {
    const auto& prompt = request.prompt;
    const uint32_t end = request.breakpoints.at(index).tokens;
    return model_->tokenizer->decode({prompt.begin(), prompt.begin() + end}, true);
  }

  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::shared_ptr<ServedModel> model_ = make_fake_model(backend_);
  ResponseContext context_{
      .tenant = "", .session = "", .shared = std::make_shared<ResponseStore>(1 << 20)};
};

TEST_F(Breakpoints, a_static_part_ends_where_its_marked_part_does) {
  const auto job = chat("[" + part("rules", true) + "," + part("question", false) + "]");
  ASSERT_TRUE(job) << job.error().message;
  const auto& request = job->requests[0];
  ASSERT_EQ(request.breakpoints.size(), 1u);
  EXPECT_EQ(before(request, 0), "<bos><|im_start|>user\nrules");
  EXPECT_EQ(request.breakpoints[0].ttl, minutes(30));
  EXPECT_FALSE(request.explicit_breakpoints);
  // The prompt is what it is without the mark.
  const auto plain = chat("[" + part("rules", false) + "," + part("question", false) + "]");
  EXPECT_EQ(plain->requests[0].prompt, request.prompt);
  EXPECT_TRUE(plain->requests[0].breakpoints.empty());
}

TEST_F(Breakpoints, a_template_that_trims_moves_the_end_to_where_prompts_still_agree) {
  const auto whole = model_->render_chat;
  model_->render_chat = [whole](const boost::json::object& context) {
    boost::json::object trimmed = context;
    for (auto& message : trimmed.at("messages").as_array()) {
      auto& content = message.as_object().at("content").as_string();
      while (content.ends_with(' ')) content.pop_back();
    }
    return whole(trimmed);
  };
  const auto job = chat("[" + part("rules   ", true) + "]");
  ASSERT_TRUE(job);
  EXPECT_EQ(before(job->requests[0], 0), "<bos><|im_start|>user\nrules");
}

TEST_F(Breakpoints, a_marked_text_that_spells_control_tokens_or_signs_stays_text) {
  const auto job = chat("[" +
                        part("a<|im_end|>\xF4\x8F\xBF\xBD"
                             "0\xF4\x8F\xBF\xBD",
                             true) +
                        "," + part("b", true) + "]");
  ASSERT_TRUE(job) << job.error().message;
  const auto& request = job->requests[0];
  ASSERT_EQ(request.breakpoints.size(), 2u);
  EXPECT_EQ(before(request, 0),
            "<bos><|im_start|>user\na<|im_end|>\xF4\x8F\xBF\xBD"
            "0\xF4\x8F\xBF\xBD");
  EXPECT_EQ(std::count(request.prompt.begin(), request.prompt.end(), FakeTokenizer::kEnd), 1);
}

TEST_F(Breakpoints, the_latest_three_count_and_four_in_explicit_mode) {
  std::string parts;
  for (int i = 0; i < 6; ++i) parts += (i == 0 ? "" : ",") + part(std::to_string(i), true);
  const auto implicit = chat("[" + parts + "]");
  ASSERT_TRUE(implicit);
  ASSERT_EQ(implicit->requests[0].breakpoints.size(), 3u);
  EXPECT_TRUE(before(implicit->requests[0], 0).ends_with("\n3"));
  const auto chosen = chat("[" + parts + "]", R"("prompt_cache_options":{"mode":"explicit"})");
  ASSERT_TRUE(chosen);
  ASSERT_EQ(chosen->requests[0].breakpoints.size(), 4u);
  EXPECT_TRUE(chosen->requests[0].explicit_breakpoints);
  EXPECT_TRUE(before(chosen->requests[0], 0).ends_with("\n2"));
}

TEST_F(Breakpoints, a_lifetime_is_the_breakpoints_own_or_the_requests) {
  const auto job = chat(
      R"([{"type":"text","text":"a","prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}},)" +
          part("b", true) + "]",
      R"("prompt_cache_options":{"mode":"implicit","ttl":"30m"},"prompt_cache_key":"k",
         "prompt_cache_retention":"24h")");
  ASSERT_TRUE(job) << job.error().message;
  const auto& breakpoints = job->requests[0].breakpoints;
  ASSERT_EQ(breakpoints.size(), 3u);  // and the prompt's end, for a lifetime was named
  EXPECT_EQ(breakpoints[0].ttl, hours(12));
  EXPECT_EQ(breakpoints[1].ttl, minutes(30));
  EXPECT_EQ(breakpoints[2].tokens, job->requests[0].prompt.size());
}

TEST_F(Breakpoints, a_completion_marks_its_whole_prompt_by_a_lifetime) {
  const auto job =
      prepare_completion(model_, R"({"prompt":"abc","prompt_cache_options":{"ttl":"12h"}})", "");
  ASSERT_TRUE(job);
  ASSERT_EQ(job->requests[0].breakpoints.size(), 1u);
  EXPECT_EQ(job->requests[0].breakpoints[0].tokens, 4u);
}

// case A6
TEST_F(Breakpoints, wrong_values_are_refused_with_their_place) {
  const struct {
    const char* content;
    const char* fields;
    const char* param;
  } cases[] = {
      {R"("x")", R"("prompt_cache_key":7)", "prompt_cache_key"},
      {R"("x")", R"("prompt_cache_retention":"1h")", "prompt_cache_retention"},
      {R"("x")", R"("prompt_cache_options":"explicit")", "prompt_cache_options"},
      {R"("x")", R"("prompt_cache_options":{"mode":"all"})", "prompt_cache_options.mode"},
      {R"("x")", R"("prompt_cache_options":{"ttl":"1m"})", "prompt_cache_options.ttl"},
      {R"("x")", R"("prompt_cache_options":{"ttl":60})", "prompt_cache_options.ttl"},
      {R"("x")", R"("prompt_cache_breakpoint":{"mode":"explicit"})", "prompt_cache_breakpoint"},
      {R"([{"type":"text","text":"x","prompt_cache_breakpoint":true}])", "",
       "messages[0].content[0].prompt_cache_breakpoint"},
      {R"([{"type":"text","text":"x","prompt_cache_breakpoint":{}}])", "",
       "messages[0].content[0].prompt_cache_breakpoint.mode"},
      {R"([{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"implicit"}}])", "",
       "messages[0].content[0].prompt_cache_breakpoint.mode"},
      {R"([{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit","ttl":"9h"}}])",
       "", "messages[0].content[0].prompt_cache_breakpoint.ttl"},
  };
  for (const auto& c : cases) {
    const auto job = chat(c.content, c.fields);
    ASSERT_FALSE(job) << c.content << c.fields;
    EXPECT_EQ(job.error().status, 400);
    EXPECT_EQ(job.error().param, c.param);
  }
}

TEST_F(Breakpoints, a_client_that_sends_the_notes_themselves_gains_nothing) {
  for (const char* notes : {"7", "[7]", "[[1]]", "[[-1,null]]", "[[99999,null]]", "[[1,\"x\"]]",
                            "[[1,1e300]]", "[[1,99999999999]]"}) {
    const auto job = prepare_chat(model_,
                                  std::string(R"({"messages":[{"role":"user","content":"abc",)") +
                                      R"("spillway:breakpoints":)" + notes + "}]}",
                                  "");
    ASSERT_TRUE(job) << notes;
    EXPECT_TRUE(job->requests[0].breakpoints.empty()) << notes;
  }
}

TEST_F(Breakpoints, notes_beside_a_content_that_is_no_text_mark_nothing) {
  model_->template_takes_null = true;
  for (const char* content : {R"("content":null,)", ""}) {
    const auto job = prepare_chat(
        model_,
        std::string(R"({"messages":[{"role":"user","content":"abc"},{"role":"assistant",)") +
            content +
            R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],)"
            R"("spillway:breakpoints":[[0,null]]}]})",
        "");
    if (job) EXPECT_TRUE(job->requests[0].breakpoints.empty());
  }
}

TEST_F(Breakpoints, a_response_keeps_its_breakpoints_for_the_turns_after_it) {
  const std::string input = R"([{"role":"system","content":[)" + part("doc", true, "input_text") +
                            R"(]},{"role":"user","content":"one"}])";
  const auto first = response(R"({"instructions":"be kind","input":)" + input + "}");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(before(first->request, 0), "<bos><|im_start|>system\nbe kind\n\ndoc");
  keep_response(*first, context_);
  const auto second = response(R"({"input":"two","previous_response_id":")" + first->id + "\"}");
  ASSERT_TRUE(second) << second.error().message;
  ASSERT_EQ(second->request.breakpoints.size(), 1u);
  EXPECT_EQ(before(second->request, 0), "<bos><|im_start|>system\ndoc");
}

TEST_F(Breakpoints, stored_responses_without_a_connection_are_a_chain) {
  const auto first = response(R"({"input":"one"})");
  EXPECT_EQ(first->request.chain, first->id);
  keep_response(*first, context_);
  const auto second = response(R"({"input":"two","previous_response_id":")" + first->id + "\"}");
  EXPECT_EQ(second->request.chain, first->id);
  EXPECT_EQ(response(R"({"input":"one","store":false})")->request.chain, "");
  context_.session = "ws";
  EXPECT_EQ(response(R"({"input":"one"})")->request.chain, "");
}

TEST_F(Breakpoints, a_response_says_what_was_applied_and_prewarms) {
  const auto call =
      response(R"({"input":"x","prompt_cache_options":{"mode":"explicit","prewarm":true}})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->request.stop.max_tokens, 0u);
  const auto object = call->events->object();
  EXPECT_EQ(object.at("prompt_cache_options").at("mode").as_string(), "explicit");
  EXPECT_EQ(object.at("prompt_cache_options").at("ttl").as_string(), "30m");
  const auto wrong = response(
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x",
          "prompt_cache_breakpoint":{"mode":"no"}}]}]})");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().param, "input[0].content[0].prompt_cache_breakpoint.mode");
}

}  // namespace
}  // namespace spillway::server
