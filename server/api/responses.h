// /v1/responses, over HTTP and as a WebSocket's response.create: the body to what the engine is
// asked, after the public Open Responses protocol (2026-04-24).
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "scheduler/request.h"
#include "server/api/job.h"
#include "server/api/response_events.h"
#include "server/api/response_store.h"

namespace spillway::server {

// Who asks, and where earlier responses are found.
struct ResponseContext {
  std::string tenant;
  std::string session;                                  // soft lease on the path; "" for none
  std::shared_ptr<ResponseStore> shared;                // store: true
  std::shared_ptr<ResponseStore> connection = nullptr;  // store: false; null over HTTP
};

// One response about to be computed.
struct ResponseCall {
  std::string id;  // "resp_..."
  bool store = true;
  bool stream = false;
  boost::json::array messages = {};  // the conversation so far, without instructions
  size_t messages_bytes = 0;         // as JSON
  scheduler::Request request = {};
  std::unique_ptr<ResponseEvents> events = {};
};

// Checks, renders and tokenizes: long work, for the worker pool. An unknown previous_response_id is
// 400 previous_response_not_found.
ApiResult<ResponseCall> prepare_response(std::shared_ptr<const ServedModel> model,
                                         const boost::json::object& body,
                                         const ResponseContext& context);

// Keeps a completed response where `call.store` says, so that it can be continued.
void keep_response(const ResponseCall& call, const ResponseContext& context);

// POST /v1/responses.
ApiResult<Job> prepare_response_job(std::shared_ptr<const ServedModel> model, std::string_view body,
                                    const ResponseContext& context);

}  // namespace spillway::server
