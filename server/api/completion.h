// POST /v1/completions: the body to a job.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>
#include <vector>

#include "server/api/job.h"

namespace spillway::server {

// One prompt: text, or token ids.
ApiResult<std::vector<model::TokenId>> read_one_prompt(const boost::json::value& prompt,
                                                       const ServedModel& model, bool add_special);

// Takes a prompt as text, list of texts, token ids or list of those. With `echo` the prompt comes
// back, with `logprobs` its log-probabilities too, and `max_tokens` may be 0. Long work: for the
// worker pool. `tenant` isolates the cache.
ApiResult<Job> prepare_completion(std::shared_ptr<const ServedModel> model, std::string_view body,
                                  const std::string& tenant);

}  // namespace spillway::server
