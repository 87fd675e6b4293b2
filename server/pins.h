// GET /v1/cache/pins[/id] and DELETE /v1/cache/pins/id: questions that the engine's thread answers.
#pragma once

#include <memory>
#include <string>

#include "runtime/task.h"
#include "server/api/served_model.h"
#include "server/routes.h"

namespace spillway::server {

// Both suspend until the engine has answered. `id` "": all of the tenant's.
Task<Answer> show_pins(std::shared_ptr<const ServedModel> model, std::string tenant,
                       std::string id);
Task<Answer> delete_pin(std::shared_ptr<const ServedModel> model, std::string tenant,
                        std::string id);

}  // namespace spillway::server
