// Which path answers what. Plain answers come as a Response, work for the engine as a Job that the
// session runs.
#pragma once

#include <string>
#include <variant>

#include "runtime/task.h"
#include "server/api/job.h"
#include "server/connection.h"
#include "server/http_parser.h"
#include "server/response.h"
#include "server/service.h"

namespace spillway::server {

struct Request {
  std::string id;  // x-request-id
  RequestHead head;
  std::string body;
  std::string tenant;  // of its key; isolates the cache
};

using Answer = std::variant<Response, Job>;

// What can be refused before a body is read: origin, key, path, method. Success: go on.
ApiResult<std::string> admit(const Service& service, const RequestHead& head);  // the tenant
// Suspends for work on the worker pool. `service` and `connection`, whose client waits for it, must
// outlive it.
Task<Answer> answer(Service& service, Connection& connection, Request request);
// Of the path, as an Allow field has them; "" if there is nothing at it.
std::string_view allowed_methods(std::string_view path);
// The route's name for metrics, "other" if there is none: clients cannot make new labels.
std::string_view route_name(std::string_view path);

}  // namespace spillway::server
