#include "server/api/served_model.h"

#include <algorithm>
#include <boost/json.hpp>

namespace spillway::server {
namespace {

// Some templates paste a missing content as "None" or fail on it, others ask whether it is none.
bool renders_missing_content(const ServedModel& model) {
  namespace json = boost::json;
  const json::value call = {
      {"id", "call_00000"},
      {"type", "function"},
      {"function", {{"name", "probe"}, {"arguments", json::object{{"a", 1}}}}}};
  json::object turn{{"role", "assistant"}, {"content", nullptr}};
  turn["tool_calls"] = json::array{call};
  json::object context{{"add_generation_prompt", true}, {"bos_token", ""}, {"eos_token", ""}};
  context["messages"] = json::array{json::object{{"role", "user"}, {"content", "q"}}, turn};
  const auto text = model.render_chat(context);
  return text && text->find("None") == std::string::npos;
}

}  // namespace

bool ServedModel::answers_to(std::string_view name) const {
  const auto is_one_of = [&](const auto& list) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  return is_one_of(names) || is_one_of(aliases);
}

void prepare_served_model(ServedModel& model) {
  model.control_text = ControlText(*model.tokenizer);
  model.template_takes_null = renders_missing_content(model);
}

}  // namespace spillway::server
