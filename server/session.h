// One client's connection, from the first byte to the last.
#pragma once

#include <memory>

#include "runtime/stop.h"
#include "runtime/task.h"
#include "server/service.h"
#include "server/stream.h"

namespace spillway::server {

// Serves requests one after the other, so pipelined ones are answered in order. Ends when the
// client leaves, breaks the rules or a deadline, when service.drain stops and nothing runs, or
// soon after `stop` stops. Network thread; `service` and `stop` must outlive it.
Task<> serve_connection(Service& service, std::unique_ptr<Stream> stream, StopFlag& stop);

}  // namespace spillway::server
