// The Responses protocol over one WebSocket (Open Responses 2026-04-24, with OpenAI's lanes and
// steering): takes response.create and response.steer, sends events. Closing the socket cancels
// what runs. What the lanes do: response_lanes.h.
#pragma once

#include "runtime/stop.h"
#include "runtime/task.h"
#include "server/connection.h"
#include "server/http_parser.h"
#include "server/response.h"
#include "server/service.h"

namespace spillway::server {

// From the upgrade request on, until the socket has ended. `stop` ends it at once. Network thread.
Task<> serve_responses_socket(Service& service, Connection& connection, RequestHead head,
                              HeaderFields fields, std::string tenant, StopFlag& stop);

}  // namespace spillway::server
