#include "server/api/steering.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <utility>

#include "server/api/response_items.h"

namespace spillway::server {

namespace json = boost::json;

json::object error_event(const ApiError& error) {
  json::object details{{"type", error.type}, {"message", error.message}};
  details["code"] = nullptr;
  details["param"] = nullptr;
  if (!error.code.empty()) details["code"] = error.code;
  if (!error.param.empty()) details["param"] = error.param;
  return {{"type", "error"}, {"status", error.status}, {"error", std::move(details)}};
}

json::object steer_accepted_event(const Steer& steer, const std::string& response,
                                  uint64_t sequence) {
  return {{"type", "response.steer.accepted"},
          {"sequence_number", sequence},
          {"steer", {{"id", steer.id}, {"previous_response_id", response}}}};
}

json::object steer_failed_event(const Steer& steer, const std::string& response, std::string code,
                                std::string message) {
  json::object details{{"input", steer.input}, {"previous_response_id", response}};
  if (!steer.id.empty()) details["id"] = steer.id;
  return {{"type", "response.steer.failed"},
          {"sequence_number", 0},
          {"steer", std::move(details)},
          {"error",
           {{"type", "invalid_request_error"},
            {"code", std::move(code)},
            {"message", std::move(message)}}}};
}

std::optional<std::string> refuse_steering(const json::value& input) {
  const auto messages = read_response_input(input);
  if (!messages) return messages.error().message;
  const bool all_user = std::all_of(
      messages->begin(), messages->end(),
      [](const json::value& message) { return message.get_object().at("role") == "user"; });
  if (!messages->empty() && all_user) return std::nullopt;
  return "steering takes messages of the role user only";
}

json::object successor_body(json::object body, std::vector<Steer> steers,
                            const std::string& previous) {
  json::array input;
  for (Steer& steer : steers) {
    if (json::array* items = steer.input.if_array()) {
      for (json::value& item : *items) input.push_back(std::move(item));
    } else {
      input.push_back(
          json::object{{"type", "message"}, {"role", "user"}, {"content", std::move(steer.input)}});
    }
  }
  body["input"] = std::move(input);
  body["previous_response_id"] = previous;
  body.erase("generate");
  return body;
}

}  // namespace spillway::server
