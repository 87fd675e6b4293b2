// Pinned prefixes: POST /v1/cache/pins to a job that computes a prompt and has it kept, and what
// GET and DELETE answer.
#pragma once

#include <string>
#include <string_view>

#include "scheduler/pins.h"
#include "server/api/job.h"

namespace spillway::server {

// Takes `messages`, `input` (with `instructions`) or `prompt`, and `ttl` in seconds. Long work: for
// the worker pool. `tenant` isolates the cache.
ApiResult<Job> prepare_pin(std::shared_ptr<const ServedModel> model, std::string_view body,
                           const std::string& tenant);

// GET: the tenant's pins, or with `id` that one alone (404 if there is none).
ApiResult<std::string> pins_body(const ServedModel& model, const scheduler::PinList& list,
                                 std::string_view id);
std::string pin_deleted_body(std::string_view id);
ApiError no_such_pin(std::string_view id);

}  // namespace spillway::server
