// POST /v1/chat/completions: the body to a job.
#pragma once

#include <string_view>

#include "server/api/job.h"

namespace spillway::server {

// Parses, renders and tokenizes: long work, for the worker pool. `tenant` isolates the cache.
ApiResult<Job> prepare_chat(std::shared_ptr<const ServedModel> model, std::string_view body,
                            const std::string& tenant);

}  // namespace spillway::server
