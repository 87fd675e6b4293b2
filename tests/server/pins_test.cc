// Pins: what is asked becomes a prompt to compute and keep, and what comes back becomes JSON.
#include "server/api/pins.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/server/fake_model.h"

namespace spillway::server {
namespace {

const std::string kText(40, 'x');

class Pins : public testing::Test {
 protected:
  ApiResult<Job> prepare(const std::string& body) { return prepare_pin(model_, body, "tenant"); }
  std::string prompt_of(const ApiResult<Job>& job) {
    return model_->tokenizer->decode(job->requests.at(0).prompt, true);
  }

  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::shared_ptr<ServedModel> model_ = make_fake_model(backend_);
};

TEST_F(Pins, messages_input_and_prompt_say_what_is_kept) {
  const auto chat = prepare(R"({"messages":[{"role":"system","content":")" + kText + R"("}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  // Nobody knows yet whose turn comes next.
  EXPECT_EQ(prompt_of(chat), "<bos><|im_start|>system\n" + kText + "<|im_end|>\n");
  const scheduler::Request& request = chat->requests[0];
  EXPECT_EQ(request.stop.max_tokens, 0u);
  EXPECT_EQ(request.tenant, "tenant");
  ASSERT_TRUE(request.pin);
  EXPECT_EQ(request.pin->id, chat->id);
  EXPECT_EQ(request.pin->ttl, std::chrono::hours(1));
  const auto input = prepare(R"({"instructions":"do","input":")" + kText + R"(","ttl":"12h"})");
  ASSERT_TRUE(input) << input.error().message;
  EXPECT_EQ(prompt_of(input),
            "<bos><|im_start|>system\ndo<|im_end|>\n<|im_start|>user\n" + kText + "<|im_end|>\n");
  EXPECT_EQ(input->requests[0].pin->ttl, std::chrono::hours(12));
  const auto prompt =
      prepare(R"({"prompt":")" + kText + R"(","ttl":5,"cache_salt":"s","model":"fake"})");
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(prompt_of(prompt), "<bos>" + kText);
  EXPECT_EQ(prompt->requests[0].pin->ttl, std::chrono::seconds(5));
  EXPECT_EQ(prompt->requests[0].cache_salt, "s");
}

// case A6
TEST_F(Pins, wrong_orders_are_refused_with_their_field) {
  const struct {
    std::string body;
    const char* param;
  } cases[] = {
      {"{}", "messages"},
      {R"({"prompt":"a","input":"b"})", "messages"},
      {R"({"prompt":"short"})", "messages"},
      {R"({"prompt":[")" + kText + "\",\"" + kText + R"("]})", "prompt"},
      {R"({"prompt":")" + kText + R"(","ttl":0})", "ttl"},
      {R"({"prompt":")" + kText + R"(","ttl":604801})", "ttl"},
      {R"({"prompt":")" + kText + R"(","ttl":"soon"})", "ttl"},
      {R"({"prompt":")" + kText + R"(","model":"other"})", "model"},
      {R"({"prompt":")" + kText + R"(","cache_salt":""})", "cache_salt"},
      {R"({"prompt":")" + std::string(5000, 'x') + R"("})", "messages"},
  };
  for (const auto& c : cases) {
    const auto job = prepare(c.body);
    ASSERT_FALSE(job) << c.body;
    EXPECT_EQ(job.error().param, c.param) << c.body;
  }
  model_->prefix_caching = false;
  EXPECT_EQ(prepare(R"({"prompt":")" + kText + R"("})").error().code, "unsupported");
}

scheduler::Output done_with(scheduler::PinResult result) {
  scheduler::Output output;
  output.done = true;
  output.pin = scheduler::PinOutcome{
      .result = result, .tokens = 32, .pages = 2, .pinned_pages = 24, .limit_pages = 25};
  output.usage.prompt_tokens = 41;
  return output;
}

TEST_F(Pins, a_pin_says_what_it_covers_and_when_it_ends) {
  auto job = prepare(R"({"prompt":")" + kText + R"(","ttl":60})");
  std::string wire;
  ASSERT_TRUE(job->reply->take(0, done_with(scheduler::PinResult::kPinned), wire));
  job->reply->finish(wire);
  const auto body = boost::json::parse(wire);
  EXPECT_EQ(body.at("id").as_string(), job->id);
  EXPECT_EQ(body.at("object").as_string(), "cache.pin");
  EXPECT_EQ(body.at("tokens").as_int64(), 32);
  EXPECT_EQ(body.at("pages").as_int64(), 2);
  EXPECT_NEAR(double(body.at("expires_at").as_int64()), double(std::time(nullptr)) + 60, 2);
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 41);
}

TEST_F(Pins, what_finds_no_room_is_refused_with_the_counts) {
  const struct {
    scheduler::PinResult result;
    int status;
    const char* code;
  } cases[] = {{scheduler::PinResult::kTooLarge, 400, "pin_too_large"},
               {scheduler::PinResult::kNoRoom, 409, "pin_limit_reached"},
               {scheduler::PinResult::kLost, 503, "pin_lost"}};
  for (const auto& c : cases) {
    auto job = prepare(R"({"prompt":")" + kText + R"("})");
    std::string wire;
    scheduler::Output cancelled;
    cancelled.finish = scheduler::FinishReason::kCancelled;  // nothing was computed for it
    ASSERT_TRUE(job->reply->take(0, cancelled, wire));
    const auto taken = job->reply->take(0, done_with(c.result), wire);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().status, c.status);
    EXPECT_EQ(taken.error().code, c.code);
    if (c.status != 503) EXPECT_NE(taken.error().message.find("25"), std::string::npos);
  }
}

}  // namespace
}  // namespace spillway::server
