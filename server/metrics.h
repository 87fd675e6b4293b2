// Counters and gauges in Prometheus' text format, under vLLM's names where the meaning is the same.
// Thread safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "scheduler/engine.h"
#include "scheduler/request.h"

namespace spillway::server {

struct RequestTimes {  // seconds
  double to_first_token = 0;
  double total = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A request that ended well: `reason` is "stop" or "length"; else "abort" or "error".
  void observe_request(const scheduler::Usage& usage, const RequestTimes& times,
                       std::string_view reason);
  void observe_failed(std::string_view reason);
  void observe_token_gap(double seconds);
  void count_http(std::string_view path, int status);
  void connection_opened();
  void connection_closed();
  void connection_refused();  // over the bound, or no file descriptor
  void websocket_opened();
  void websocket_closed();
  void work_began();  // a request's answer, or a response on a WebSocket
  void work_ended();

  // The text, with the engine's gauges as of `stats` (null while loading).
  std::string text(const scheduler::EngineStats* stats, std::string_view model_name,
                   uint32_t page_tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::server
