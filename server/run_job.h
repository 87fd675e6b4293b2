// Runs one job for a connected client: submits its requests, sends what comes back, and cancels
// when the client leaves, stops reading or the server must end (cases A3, A4, A12).
#pragma once

#include "runtime/task.h"
#include "server/api/job.h"
#include "server/connection.h"
#include "server/respond.h"
#include "server/service.h"

namespace spillway::server {

// Suspends until the answer is sent or given up. Returns false when the connection is of no more
// use. Network thread.
Task<bool> run_job(Service& service, Connection& connection, Responder& responder, Job job);

}  // namespace spillway::server
