// A chat in the terminal.

#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "runtime/log.h"
#include "server/cli/chat_source.h"
#include "server/cli/commands.h"

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
  Chat(ChatSource& source, std::string system) : source_(source), system_(std::move(system)) {
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

  void answer() {
    const auto start = Clock::now();
    g_interrupted = 0;
    std::string text;
    double first = 0;
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const auto on_text = [&](const std::string& piece) {
      if (text.empty()) first = seconds();
      std::fputs(piece.c_str(), stdout);
      std::fflush(stdout);
      text += piece;
    };
    const auto answer = source_.answer(messages_, on_text, [] { return g_interrupted != 0; });
    if (!answer) {
      std::printf("%s%s%s\n", style_.warn, answer.error().message.c_str(), style_.off);
      messages_.erase(messages_.end() - 1);
      return;
    }
    messages_.push_back(json::object{{"role", "assistant"}, {"content", std::move(text)}});
    if (!answer->error.empty()) {
      std::printf("%s\n%s%s", style_.warn, answer->error.c_str(), style_.off);
    }
    const double total = seconds();
    print_cost(*answer, first > 0 ? first : total, total);
  }

  void print_cost(const ChatAnswer& answer, double first, double total) {
    const char* why = answer.stopped ? "stopped" : answer.length_reached ? "length reached" : "";
    std::printf("\n%s[", style_.dim);
    if (answer.prompt_tokens > 0) {
      const double decode = total - first;
      std::printf("%u prompt tokens, %u from cache · %u tokens · %.2f s to the first",
                  answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens, first);
      if (answer.completion_tokens > 1 && decode > 0) {
        std::printf(" · %.0f tokens/s", (answer.completion_tokens - 1) / decode);
      }
      if (*why != '\0') std::printf(" · ");
    } else if (*why == '\0') {
      std::printf("%.2f s to the first", first);  // a server that does not count
    }
    std::printf("%s]%s\n\n", why, style_.off);
  }

  ChatSource& source_;
  std::string system_;
  json::array messages_;
  std::string typed_;
  Style style_;
};

}  // namespace

int chat_command(const ChatOptions& options) {
  configure_log("warn");
  auto source = options.url.empty() ? make_local_chat(options) : make_remote_chat(options);
  if (!source) {
    std::fprintf(stderr, "spillway: %s\n", source.error().message.c_str());
    return 1;
  }
  if (isatty(STDOUT_FILENO)) {
    std::fprintf(stderr, "%s  Type a message; /help for commands, Ctrl-C stops an answer.\n\n",
                 (*source)->banner().c_str());
  }
  take_interrupts();
  return Chat(**source, options.system).run();
}

}  // namespace spillway::server
