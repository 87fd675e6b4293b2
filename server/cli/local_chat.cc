// A chat with the model in this process.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "server/api/chat_prompt.h"
#include "server/api/generation.h"
#include "server/api/random_id.h"
#include "server/cli/chat_source.h"
#include "server/cli/load_model.h"

namespace spillway::server {
namespace {

// Outputs from the engine thread to the terminal's.
class Inbox final : public scheduler::OutputSink {
 public:
  void on_output(scheduler::Output output) override {
    const std::lock_guard lock(mutex_);
    outputs_.push_back(std::move(output));
    arrived_.notify_one();
  }
  // Waits a moment for the next one.
  std::optional<scheduler::Output> next() {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !outputs_.empty(); });
    if (outputs_.empty()) return std::nullopt;
    scheduler::Output output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<scheduler::Output> outputs_;  // bounded by the answer's length
};

class LocalChat final : public ChatSource {
 public:
  LocalChat(const ChatOptions& options, LoadedModel model)
      : options_(options), model_(std::move(model.served)), banner_(std::move(model.banner)) {}

  std::string banner() const override { return banner_; }

  Result<ChatAnswer> answer(const boost::json::array& messages, const OnText& on_text,
                            const std::function<bool()>& interrupted) override {
    auto request = make(messages);
    if (!request) return invalid_argument(request.error().message);
    const auto inbox = std::make_shared<Inbox>();
    const auto id = model_->backend->submit(std::move(*request), inbox);
    if (!id) return id.error();
    ChatAnswer answer;
    for (;;) {
      if (interrupted() && !std::exchange(answer.stopped, true)) model_->backend->cancel(*id);
      auto output = inbox->next();
      if (!output) continue;
      if (!output->text.empty()) on_text(output->text);
      if (!output->error.empty()) answer.error = output->error;
      if (!output->done) continue;
      answer.prompt_tokens = output->usage.prompt_tokens;
      answer.cached_tokens = output->usage.cached_tokens;
      answer.completion_tokens = output->usage.completion_tokens;
      answer.length_reached = output->finish == scheduler::FinishReason::kLength;
      return answer;
    }
  }

 private:
  ApiResult<scheduler::Request> make(const boost::json::array& messages) {
    ChatPrompt prompt;
    prompt.messages = messages;
    auto tokens = encode_chat(*model_, std::move(prompt));
    if (!tokens) return tokens.error();
    Generation generation;
    generation.sampling.temperature = static_cast<float>(options_.temperature);
    generation.sampling.top_p = static_cast<float>(options_.top_p);
    generation.sampling.seed = model_->seed ? *model_->seed : random_u64();
    if (options_.max_tokens > 0) generation.max_tokens = options_.max_tokens;
    auto request = make_request(generation, *model_, std::move(*tokens), std::nullopt, "messages");
    if (request) request->client_id = "terminal";
    return request;
  }

  const ChatOptions options_;
  const std::shared_ptr<const ServedModel> model_;
  const std::string banner_;
};

}  // namespace

Result<std::unique_ptr<ChatSource>> make_local_chat(const ChatOptions& options) {
  auto loaded = load_model(options.model);
  if (!loaded) return loaded.error();
  return std::unique_ptr<ChatSource>(std::make_unique<LocalChat>(options, std::move(*loaded)));
}

}  // namespace spillway::server
