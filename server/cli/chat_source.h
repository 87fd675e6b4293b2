// Who answers a terminal chat: a model in this process, or a server somewhere.
#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/result.h"
#include "server/cli/options.h"

namespace spillway::server {

struct ChatAnswer {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  bool length_reached = false;
  bool stopped = false;    // by `interrupted`
  std::string error = {};  // why it ended early; what came before it stays
};

class ChatSource {
 public:
  using OnText = std::function<void(const std::string&)>;

  virtual ~ChatSource() = default;
  // Blocks until the answer has ended; `on_text` gets each piece as it comes. Soon after
  // `interrupted` returns true the answer ends. Error: there is no answer at all, and why.
  virtual Result<ChatAnswer> answer(const boost::json::array& messages, const OnText& on_text,
                                    const std::function<bool()>& interrupted) = 0;
  virtual std::string banner() const = 0;  // lines for a person
};

// Loads the model: takes seconds.
Result<std::unique_ptr<ChatSource>> make_local_chat(const ChatOptions& options);
// Talks to the server at options.url, "http://host:port" with or without a path such as "/v1".
Result<std::unique_ptr<ChatSource>> make_remote_chat(const ChatOptions& options);

}  // namespace spillway::server
