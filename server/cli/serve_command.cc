#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <future>
#include <thread>

#include "runtime/log.h"
#include "server/cli/commands.h"
#include "server/cli/load_model.h"
#include "server/cli/sizes.h"
#include "server/network.h"
#include "server/server.h"
#include "server/version.h"

namespace spillway::server {
namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "spillway: %s\n", error.message.c_str());
  return 1;
}

// Signals are taken by sigwait in the main thread; every other thread inherits the mask.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);  // the loader failed
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return set;
}

// Each connection takes a file descriptor. Raises the limit as far as the system lets us; what is
// still too low for `connections_max` is said, for a person.
std::string raise_descriptor_limit(uint32_t connections_max) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kOthers = 64;  // the model, io_uring, logs
  if (limit.rlim_cur >= connections_max + kOthers) return {};
  return "  files    " + grouped_digits(limit.rlim_cur) +
         " may be open, so fewer than that many clients are served at once (ulimit -n raises it)\n";
}

std::string url_of(const ServerOptions& options, uint16_t port) {
  const bool any = options.host == "0.0.0.0" || options.host == "::";
  std::string host = any ? "127.0.0.1" : options.host;
  if (host.find(':') != host.npos) host = "[" + host + "]";
  return (options.certfile.empty() ? "http://" : "https://") + host + ":" + std::to_string(port);
}

// A second signal while draining ends the process at once.
void exit_on_second_signal(sigset_t set) {
  std::thread([set] {
    int signal = 0;
    sigwait(&set, &signal);
    std::fputs("spillway: told twice to stop, so stops at once\n", stderr);
    _exit(1);
  }).detach();
}

// Opened before the model is loaded, so that a path that cannot be written is known at once.
Result<std::ofstream> open_trace_file(const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path, std::ios::binary | std::ios::trunc);
  if (!file) return Error{ErrorCode::kIo, "--trace " + path + " cannot be written"};
  return file;
}

// What the engine has seen since `begin`, as far as its ring goes back.
void write_trace(Backend& backend, Clock::TimePoint begin, const std::string& path,
                 std::ofstream& file) {
  std::promise<TraceSnapshot> promise;
  backend.take_trace(begin, std::nullopt,
                     [&](TraceSnapshot taken) { promise.set_value(std::move(taken)); });
  const TraceSnapshot taken = promise.get_future().get();
  file << trace_json(taken) << std::flush;
  std::fprintf(stderr, "spillway: %s%s: %s events; open it at ui.perfetto.dev\n",
               file ? "the timeline is in " : "the timeline could not be written to ", path.c_str(),
               grouped_digits(taken.events.size()).c_str());
}

}  // namespace

int serve_command(const ServeOptions& options, char** argv) {
  if (auto network = ensure_network(argv); !network) return fail(network.error());
  configure_log(options.log_level);
  const sigset_t signals = block_signals();
  auto trace_file = open_trace_file(options.trace_file);
  if (!trace_file) return fail(trace_file.error());
  ModelOptions model_options = options.model;
  model_options.trace = !options.trace_file.empty();
  ServerOptions server_options = options.server;
  server_options.network = network_name();
  for (const std::string& note : options.notes) {
    std::fprintf(stderr, "spillway: %s\n", note.c_str());
  }
  const std::string few_files = raise_descriptor_limit(server_options.connections_max);
  auto started = Server::start(server_options);
  if (!started) return fail(started.error());
  std::unique_ptr<Server> server = std::move(*started);
  const std::string url = url_of(server_options, server->port());
  std::fprintf(stderr, "Spillway %s\n  network  %s, listening on %s\n%s",
               std::string(version()).c_str(), std::string(network_name()).c_str(), url.c_str(),
               few_files.c_str());

  const Clock::TimePoint began = std::chrono::steady_clock::now();
  std::shared_ptr<Backend> traced;  // the loader's, then ours; only with --trace
  std::atomic<bool> failed{false};
  const pid_t process = getpid();
  std::thread loader([&] {
    auto loaded = load_model(model_options);
    if (!loaded) {
      server->set_load_error(loaded.error().message);
      fail(loaded.error());
      failed = true;
      kill(process, SIGUSR1);
      return;
    }
    std::fprintf(stderr, "%s  ready    %s  (OpenAI's API is at %s/v1)\n", loaded->banner.c_str(),
                 url.c_str(), url.c_str());
    if (model_options.trace) traced = loaded->served->backend;
    server->set_model(std::move(loaded->served));
  });

  int signal = 0;
  sigwait(&signals, &signal);
  exit_on_second_signal(signals);
  if (!failed) std::fputs("spillway: stopping: answers in progress end first\n", stderr);
  loader.join();
  server->drain(std::chrono::seconds(options.shutdown_seconds));
  server.reset();
  if (traced != nullptr) write_trace(*traced, began, options.trace_file, *trace_file);
  return failed ? 1 : 0;
}

}  // namespace spillway::server
