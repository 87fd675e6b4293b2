#include "server/api/usage.h"

#include <algorithm>
#include <boost/json.hpp>

namespace spillway::server {

namespace json = boost::json;

void UsageSum::add(const scheduler::Usage& usage) {
  prompt_ += usage.prompt_tokens;
  cached_ += usage.cached_tokens;
  computed_ += usage.computed_tokens;
  completion_ += usage.completion_tokens;
  matched_ += std::max(usage.matched_tokens, usage.cached_tokens);
  host_ += usage.host_tokens;
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
  return {{"matched", matched_},
          {"tokens",
           {{"device", cached_ - host_ - nvme_},
            {"host", host_},
            {"nvme", nvme_},
            {"computed", prompt_ - cached_}}},
          {"wait_ms", {{"queue", queue_ms_}, {"load", load_ms_}}},
          {"first_divergence", divergence_ ? json::value(*divergence_) : json::value(nullptr)}};
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
