// A chat in the terminal, with the model in this process.

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iostream>
#include <mutex>

#include "runtime/log.h"
#include "server/api/chat_prompt.h"
#include "server/api/generation.h"
#include "server/api/random_id.h"
#include "server/cli/commands.h"
#include "server/cli/load_model.h"

namespace spillway::server {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

volatile sig_atomic_t g_interrupted = 0;  // by Ctrl-C; a signal handler can reach nothing else

void on_interrupt(int) { g_interrupted = 1; }

// Ctrl-C interrupts reads too, so that it clears the line at the prompt.
void take_interrupts() {
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

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

struct Style {  // escape sequences, empty when the output is no terminal
  const char* prompt = "";
  const char* dim = "";
  const char* warn = "";
  const char* off = "";
};

constexpr const char* kHelp =
    "  /reset          forget the conversation\n"
    "  /system TEXT    set the system message and start over\n"
    "  /help           this\n"
    "  /exit           leave (or Ctrl-D)\n"
    "  End a line with \\ to go on in the next one. Ctrl-C stops an answer.\n";

class Chat {
 public:
  Chat(const ChatOptions& options, LoadedModel model)
      : options_(options), model_(std::move(model.served)), system_(options.system) {
    if (isatty(STDOUT_FILENO)) style_ = {"\033[1;36m", "\033[2m", "\033[33m", "\033[0m"};
    reset();
  }

  int run() {
    for (;;) {
      const auto line = read_message();
      if (!line) return 0;
      if (line->empty()) continue;
      if (line->starts_with('/')) {
        if (!command(*line)) return 0;
      } else {
        messages_.push_back(json::object{{"role", "user"}, {"content", *line}});
        answer();
      }
    }
  }

 private:
  void reset() {
    messages_.clear();
    if (!system_.empty()) {
      messages_.push_back(json::object{{"role", "system"}, {"content", system_}});
    }
  }

  // One message; lines that end with \ go on. Nothing at the end of input.
  std::optional<std::string> read_message() {
    std::string message;
    for (;;) {
      std::printf("%s%s%s", style_.prompt, message.empty() ? "> " : "| ", style_.off);
      std::fflush(stdout);
      g_interrupted = 0;
      const auto line = read_line();
      if (!line) {
        if (g_interrupted == 0) {
          std::puts("");
          return std::nullopt;
        }
        std::printf("\n%s(/exit or Ctrl-D leaves)%s\n", style_.dim, style_.off);
        message.clear();
        continue;
      }
      message += *line;
      if (!message.ends_with('\\')) return message;
      message.back() = '\n';
    }
  }

  // Nothing at the end of input or on Ctrl-C.
  std::optional<std::string> read_line() {
    for (;;) {
      if (const size_t end = typed_.find('\n'); end != std::string::npos) {
        std::string line = typed_.substr(0, end);
        typed_.erase(0, end + 1);
        return line;
      }
      char bytes[4096];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
      if (count > 0) {
        typed_.append(bytes, static_cast<size_t>(count));
      } else if (count == 0 && !typed_.empty()) {
        return std::exchange(typed_, {});
      } else {
        if (g_interrupted != 0) typed_.clear();
        return std::nullopt;
      }
    }
  }

  bool command(const std::string& line) {
    if (line == "/exit" || line == "/quit") return false;
    if (line == "/reset") {
      reset();
      std::printf("%s(a new conversation)%s\n", style_.dim, style_.off);
    } else if (line.starts_with("/system ")) {
      system_ = line.substr(8);
      reset();
    } else {
      std::printf("%s%s%s", style_.dim, kHelp, style_.off);
    }
    return true;
  }

  ApiResult<scheduler::Request> make() {
    ChatPrompt prompt;
    prompt.messages = messages_;
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

  void answer() {
    auto request = make();
    if (!request) return give_up(request.error().message);
    const auto inbox = std::make_shared<Inbox>();
    const auto start = Clock::now();
    auto id = model_->backend->submit(std::move(*request), inbox);
    if (!id) return give_up(id.error().message);
    g_interrupted = 0;
    bool cancelled = false;
    std::string text;
    double first = 0;
    for (;;) {
      if (g_interrupted != 0 && !std::exchange(cancelled, true)) model_->backend->cancel(*id);
      auto output = inbox->next();
      if (!output) continue;
      if (first == 0 && !output->tokens.empty()) {
        first = std::chrono::duration<double>(Clock::now() - start).count();
      }
      std::fputs(output->text.c_str(), stdout);
      std::fflush(stdout);
      text += output->text;
      if (!output->error.empty())
        std::printf("%s\n%s%s", style_.warn, output->error.c_str(), style_.off);
      if (!output->done) continue;
      finish(std::move(text), *output, cancelled, first,
             std::chrono::duration<double>(Clock::now() - start).count());
      return;
    }
  }

  void give_up(const std::string& why) {
    std::printf("%s%s%s\n", style_.warn, why.c_str(), style_.off);
    messages_.erase(messages_.end() - 1);
  }

  void finish(std::string text, const scheduler::Output& last, bool cancelled, double first,
              double total) {
    messages_.push_back(json::object{{"role", "assistant"}, {"content", std::move(text)}});
    const scheduler::Usage& usage = last.usage;
    const char* why = cancelled                                         ? " · stopped"
                      : last.finish == scheduler::FinishReason::kLength ? " · length reached"
                                                                        : "";
    const double decode = total - first;
    std::printf("\n%s[%u prompt tokens, %u from cache · %u tokens · %.2f s to the first",
                style_.dim, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
                first);
    if (usage.completion_tokens > 1 && decode > 0) {
      std::printf(" · %.0f tokens/s", (usage.completion_tokens - 1) / decode);
    }
    std::printf("%s]%s\n\n", why, style_.off);
  }

  const ChatOptions& options_;
  std::shared_ptr<const ServedModel> model_;
  std::string system_;
  json::array messages_;
  std::string typed_;
  Style style_;
};

}  // namespace

int chat_command(const ChatOptions& options) {
  configure_log("warn");
  auto loaded = load_model(options.model);
  if (!loaded) {
    std::fprintf(stderr, "spillway: %s\n", loaded.error().message.c_str());
    return 1;
  }
  if (isatty(STDOUT_FILENO)) {
    std::fprintf(stderr, "%s  Type a message; /help for commands, Ctrl-C stops an answer.\n\n",
                 loaded->banner.c_str());
  }
  take_interrupts();
  return Chat(options, std::move(*loaded)).run();
}

}  // namespace spillway::server
