// What a Responses WebSocket says besides a response's own events: errors, and what becomes of
// steering input (OpenAI's response.steer). Pure.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/api/api_error.h"

namespace spillway::server {

// Input that was sent for a response while it ran.
struct Steer {
  std::string id;  // "" until it was taken
  boost::json::value input;
};

// {"type":"error","status":...,"error":{...}}
boost::json::object error_event(const ApiError& error);
boost::json::object steer_accepted_event(const Steer& steer, const std::string& response,
                                         uint64_t sequence);
boost::json::object steer_failed_event(const Steer& steer, const std::string& response,
                                       std::string code, std::string message);

// Nothing: it may steer. Else why not, for a person.
std::optional<std::string> refuse_steering(const boost::json::value& input);

// The response.create that goes on from `previous`, whose own was `body`, with what steered it.
boost::json::object successor_body(boost::json::object body, std::vector<Steer> steers,
                                   const std::string& previous);

}  // namespace spillway::server
