// A request that needs the engine, in the form that any transport can run: what to submit, and who
// turns the outputs into text for the wire.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/request.h"
#include "server/api/api_error.h"
#include "server/api/served_model.h"

namespace spillway::server {

// Collects the outputs of one job, on the network thread.
class Reply {
 public:
  virtual ~Reply() = default;
  // The engine has taken the requests: what a stream starts with.
  virtual void begin(std::string& wire) { static_cast<void>(wire); }
  // One output of the job's request `index`. A streaming reply appends events to `wire`. The error
  // ends the job.
  virtual ApiResult<> take(uint32_t index, const scheduler::Output& output, std::string& wire) = 0;
  // The stream fails half way: its last events (case A3).
  virtual void fail(const ApiError& error, std::string& wire);
  // All requests are done: the body, or a stream's last events and [DONE].
  virtual void finish(std::string& wire) = 0;
};

struct Job {
  std::string id;  // "chatcmpl-..."
  bool stream = false;
  std::shared_ptr<const ServedModel> model;
  std::vector<scheduler::Request> requests = {};  // at least one
  std::unique_ptr<Reply> reply = {};
};

// Why an answer ended early, as a client sees it; success for kStop and kLength.
ApiResult<> check_finish(const scheduler::Output& output);
// A line that clients of event streams skip: ": TEXT".
void append_comment(std::string& wire, std::string_view text);
// data: TEXT\n\n
void append_event(std::string& wire, std::string_view text);
// The last event of a stream that fails half way (case A3).
void append_error_event(std::string& wire, const ApiError& error);

}  // namespace spillway::server
