#include "server/api/usage.h"

#include <algorithm>
#include <boost/json.hpp>

namespace spillway::server {

namespace json = boost::json;

json::object waiting_object(const scheduler::Waiting& waiting) {
  const char* state = waiting.state == scheduler::WaitState::kQueued    ? "queued"
                      : waiting.state == scheduler::WaitState::kLoading ? "loading"
                                                                        : "computing";
  json::object out{{"state", state},
                   {"wait_ms", waiting.seconds * 1e3},
                   {"prompt_tokens", waiting.prompt_tokens},
                   {"matched", waiting.matched_tokens}};
  if (waiting.state == scheduler::WaitState::kQueued) {
    out["before"] = waiting.before;
    return out;
  }
  out["tokens"] = json::object{{"device", waiting.device_tokens},
                               {"host", waiting.host_tokens},
                               {"nvme", waiting.nvme_tokens},
                               {"computed", waiting.computed_tokens}};
  out["loading"] =
      json::object{{"host", waiting.host_tokens_left}, {"nvme", waiting.nvme_tokens_left}};
  return out;
}

void UsageSum::add(const scheduler::Usage& usage) {
  prompt_ += usage.prompt_tokens;
  cached_ += usage.cached_tokens;
  computed_ += usage.computed_tokens;
  completion_ += usage.completion_tokens;
  matched_ += std::max(usage.matched_tokens, usage.cached_tokens);
  host_ += usage.host_tokens;
  static_ += usage.static_tokens;
  nvme_ += usage.nvme_tokens;
  queue_ms_ += usage.queue_seconds * 1e3;
  load_ms_ += usage.load_seconds * 1e3;
  if (usage.first_divergence) divergence_ = usage.first_divergence;
  if (page_tokens_ == 0) return;
  // Only whole pages enter the cache.
  const uint32_t whole = usage.prompt_tokens / page_tokens_ * page_tokens_;
  written_ += whole - std::min(whole, usage.cached_tokens);
}

// What the prompt's tokens cost: where each came from, and what was waited for.
json::object UsageSum::receipt() const {
  json::object receipt{
      {"matched", matched_},
      {"tokens",
       {{"device", cached_ - host_ - nvme_},
        {"host", host_},
        {"nvme", nvme_},
        {"computed", prompt_ - cached_}}},
      {"wait_ms", {{"queue", queue_ms_}, {"load", load_ms_}}},
      {"first_divergence", divergence_ ? json::value(*divergence_) : json::value(nullptr)}};
  if (static_ > 0) receipt["static"] = static_;
  return receipt;
}

json::object UsageSum::chat() const {
  return {{"prompt_tokens", prompt_},
          {"completion_tokens", completion_},
          {"total_tokens", prompt_ + completion_},
          {"prompt_tokens_details",
           {{"cached_tokens", cached_},
            {"cache_write_tokens", written_},
            {"computed_tokens", computed_}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}},
          {"spillway", receipt()}};
}

json::object UsageSum::responses() const {
  return {{"input_tokens", prompt_},
          {"input_tokens_details",
           {{"cached_tokens", cached_},
            {"cache_write_tokens", written_},
            {"computed_tokens", computed_}}},
          {"output_tokens", completion_},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", prompt_ + completion_},
          {"spillway", receipt()}};
}

}  // namespace spillway::server
