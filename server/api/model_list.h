// GET /v1/models and /v1/models/{id}.
#pragma once

#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/served_model.h"

namespace spillway::server {

// As in vLLM: a card for each name of --served-model-name; the file's own name is one.
std::string model_list(const ServedModel& model);
ApiResult<std::string> model_card(const ServedModel& model, std::string_view name);

}  // namespace spillway::server
