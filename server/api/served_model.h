// What the routes need of the loaded model. Immutable; shared by all threads.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "runtime/result.h"
#include "scheduler/engine.h"
#include "scheduler/request.h"
#include "server/api/control_text.h"

namespace spillway::server {

// The engine as the server sees it: the seam at which tests put a fake. Any thread.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Result<scheduler::RequestId> submit(scheduler::Request request,
                                              std::shared_ptr<scheduler::OutputSink> sink) = 0;
  virtual void cancel(scheduler::RequestId request) = 0;
  virtual void end_session(const std::string& session) = 0;
  virtual void prefetch(const std::string& session) = 0;
  // Both call back on the engine's thread.
  virtual void pins(const std::string& tenant, std::function<void(scheduler::PinList)> then) = 0;
  virtual void unpin(const std::string& tenant, const std::string& id,
                     std::function<void(bool found)> then) = 0;
  virtual void reset_prefix_cache(std::function<void(uint64_t pages)> then) = 0;
  // As the engine's: each start is ended by one take.
  virtual void start_trace() = 0;
  virtual void take_trace(Clock::TimePoint begin, std::optional<std::string> tenant,
                          std::function<void(TraceSnapshot)> then) = 0;
  virtual scheduler::EngineStats stats() const = 0;
};

struct ServedModel {
  std::vector<std::string> names;    // accepted in "model" and listed; the first is reported
  std::vector<std::string> aliases;  // accepted, not listed
  std::string path;                  // file name only, for /v1/models' root
  int64_t created = 0;               // Unix seconds
  uint32_t context_tokens_max = 0;
  uint32_t page_tokens = 16;
  bool prefix_caching = true;
  std::string system_fingerprint;  // changes with weights and arithmetic
  uint32_t choices_max = 128;
  std::shared_ptr<const model::Tokenizer> tokenizer;
  // Renders the chat template over {messages, tools, add_generation_prompt, ...}. Any thread.
  std::function<Result<std::string>(const boost::json::object& context)> render_chat;
  ControlText control_text;          // of the tokenizer
  bool template_takes_null = false;  // renders an assistant turn without content (messages.h)
  std::shared_ptr<Backend> backend;
  std::optional<uint64_t> seed;  // --seed: of requests that name none

  bool answers_to(std::string_view name) const;
  // 0 when nothing enters the cache.
  uint32_t cache_page_tokens() const { return prefix_caching ? page_tokens : 0; }
};

// Finishes a model: fills control_text and template_takes_null from tokenizer and render_chat.
void prepare_served_model(ServedModel& model);

}  // namespace spillway::server
