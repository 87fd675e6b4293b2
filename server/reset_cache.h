// POST /reset_prefix_cache: drops every cached page that no request holds.
#pragma once

#include <memory>

#include "runtime/task.h"
#include "server/api/served_model.h"
#include "server/routes.h"

namespace spillway::server {

// Suspends until the engine has done it.
Task<Answer> reset_cache(std::shared_ptr<Backend> backend);

}  // namespace spillway::server
