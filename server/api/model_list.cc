#include "server/api/model_list.h"

#include <boost/json.hpp>

#include "server/api/json_text.h"

namespace spillway::server {
namespace {

json::object card(const ServedModel& model, std::string_view name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "spillway"},
          {"root", model.path},
          {"parent", nullptr},
          {"max_model_len", model.context_tokens_max}};
}

}  // namespace

std::string model_list(const ServedModel& model) {
  json::array data;
  for (const std::string& name : model.names) data.push_back(card(model, name));
  return to_json(json::object{{"object", "list"}, {"data", std::move(data)}});
}

ApiResult<std::string> model_card(const ServedModel& model, std::string_view name) {
  if (model.answers_to(name)) return to_json(card(model, name));
  return ApiError{.status = 404,
                  .type = "not_found_error",
                  .message = "the model '" + std::string(name.substr(0, 256)) +
                             "' does not exist; this server has '" + model.names.front() + "'",
                  .param = "model",
                  .code = "model_not_found"};
}

}  // namespace spillway::server
