// What chat, completions and responses requests have in common: how to sample, when to stop, what
// to report. Every bound is checked here, before anything is allocated (case A6).
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/request.h"
#include "server/api/api_error.h"
#include "server/api/breakpoints.h"
#include "server/api/fields.h"
#include "server/api/served_model.h"

namespace spillway::server {

struct Generation {
  std::string model_name;  // as the client named it, or the default
  model::SamplingParams sampling;
  scheduler::StopRules stop;  // max_tokens is set by fit_to_context
  std::optional<uint32_t> max_tokens;
  uint32_t choices = 1;
  int32_t priority = 0;
  std::string cache_salt;
  CacheOptions cache;
  std::optional<double> deadline_seconds;
  bool show_control = false;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool seeded = false;  // the client named a seed
};

// Reads them; the first wrong field is left in `fields`.
Generation read_generation(Fields& fields, const ServedModel& model);
// "model" absent is the default model; another name is 404 model_not_found.
void check_model_name(Fields& fields, const ServedModel& model, std::string& name);

// The scheduler's request for a prompt of `prompt`. Sets max_tokens: what the client asked for, or
// `default_tokens`, or the rest of the context. 400 context_length_exceeded with both counts when
// it cannot fit (case A7). `tenant` isolates the cache.
ApiResult<scheduler::Request> make_request(const Generation& generation, const ServedModel& model,
                                           std::vector<model::TokenId> prompt,
                                           std::optional<uint32_t> default_tokens,
                                           const std::string& prompt_field);

// "stop" or "length"; "error" for the rest.
std::string_view finish_name(scheduler::FinishReason reason);

}  // namespace spillway::server
