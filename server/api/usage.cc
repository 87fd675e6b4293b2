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
  if (page_tokens_ == 0) return;
  // Only whole pages enter the cache.
  const uint32_t whole = usage.prompt_tokens / page_tokens_ * page_tokens_;
  written_ += whole - std::min(whole, usage.cached_tokens);
}

json::object UsageSum::chat() const {
  return {{"prompt_tokens", prompt_},
          {"completion_tokens", completion_},
          {"total_tokens", prompt_ + completion_},
          {"prompt_tokens_details",
           {{"cached_tokens", cached_},
            {"cache_write_tokens", written_},
            {"computed_tokens", computed_}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}}};
}

json::object UsageSum::responses() const {
  return {{"input_tokens", prompt_},
          {"input_tokens_details",
           {{"cached_tokens", cached_},
            {"cache_write_tokens", written_},
            {"computed_tokens", computed_}}},
          {"output_tokens", completion_},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", prompt_ + completion_}};
}

}  // namespace spillway::server
