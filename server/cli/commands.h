// What each subcommand does. Each returns the process's exit code: 0, or 1 after a line on stderr
// that says what went wrong.
#pragma once

#include "server/cli/options.h"

namespace spillway::server {

// Runs until SIGINT or SIGTERM. `argv` is for the twin on epoll (network.h).
int serve_command(const ServeOptions& options, char** argv);
int chat_command(const ChatOptions& options);
int inspect_command(const InspectOptions& options);
// Prints the memory ledger. Reads a model's header only.
int plan_command(const PlanOptions& options);
// Measures for options.seconds; loading the model comes on top.
int doctor_command(const DoctorOptions& options);
int store_command(const StoreOptions& options);
int tokenize_command(const TokenizeOptions& options);

}  // namespace spillway::server
