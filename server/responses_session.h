// The Responses protocol over one WebSocket (Open Responses 2026-04-24, with OpenAI's lanes and
// steering): takes response.create and response.steer, runs one response per lane at a time, sends
// events. Closing the socket cancels what runs.
//
// Lanes: requests with one stream_id run in the order they came, different lanes side by side; no
// stream_id is a lane too. Each lane holds a soft lease on its pages until the socket closes.
// Steering ends the active response at what was sent of it (incomplete, reason "steered") and goes
// on with the queued input in a successor.
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
