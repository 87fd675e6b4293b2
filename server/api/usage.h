// Token counts as OpenAI's usage object, summed over a job's requests.
#pragma once

#include <boost/json/object.hpp>
#include <optional>

#include "scheduler/request.h"

namespace spillway::server {

// How a request goes that waits for its first token.
boost::json::object waiting_object(const scheduler::Waiting& waiting);

class UsageSum {
 public:
  // `page_tokens` 0: nothing is written to the cache.
  explicit UsageSum(uint32_t page_tokens) : page_tokens_(page_tokens) {}

  void add(const scheduler::Usage& usage);  // of a request that is done
  // {"prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details",...}
  boost::json::object chat() const;
  // {"input_tokens","input_tokens_details",...} of the Responses API.
  boost::json::object responses() const;

 private:
  uint32_t page_tokens_;
  boost::json::object receipt() const;

  uint64_t matched_ = 0, host_ = 0, nvme_ = 0, static_ = 0;
  double queue_ms_ = 0, load_ms_ = 0;
  std::optional<uint32_t> divergence_;
  uint64_t prompt_ = 0, cached_ = 0, computed_ = 0, written_ = 0, completion_ = 0;
};

}  // namespace spillway::server
