// POST /tokenize and /detokenize, in the forms of vLLM ({"prompt"}, {"messages"}) and llama.cpp
// ({"content"}).
#pragma once

#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/served_model.h"

namespace spillway::server {

// {"tokens":[...],"count":n,"max_model_len":m}. Long work: for the worker pool.
ApiResult<std::string> tokenize(const ServedModel& model, std::string_view body);
// {"tokens":[...]} to {"prompt":text,"content":text}.
ApiResult<std::string> detokenize(const ServedModel& model, std::string_view body);

}  // namespace spillway::server
