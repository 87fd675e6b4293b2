// GET /debug/trace?seconds=S: records a timeline for so long and answers with it, as a file that
// ui.perfetto.dev opens. It shows times, sizes and counts, and no text of any client.
#pragma once

#include "server/connection.h"
#include "server/routes.h"

namespace spillway::server {

inline constexpr double kTraceSecondsDefault = 5, kTraceSecondsMax = 60;
inline constexpr uint32_t kTracesMax = 4;  // at a time; further ones are told to wait (429)

// Suspends for the seconds asked for; less when the server is told to stop or the client leaves.
// Where there are several keys it shows the asker's own requests, and of what others do only when
// something was done (runtime/trace.h, keep_own()). REQUIRES: a model.
Task<Answer> debug_trace(Service& service, Connection& connection, Request request);

}  // namespace spillway::server
