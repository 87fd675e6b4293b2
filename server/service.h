// What all sessions share. Created before the network thread starts; after that used on it alone,
// but for what says otherwise.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/stop.h"
#include "runtime/worker_pool.h"
#include "server/access.h"
#include "server/api/response_store.h"
#include "server/api/served_model.h"
#include "server/http_parser.h"
#include "server/metrics.h"

namespace spillway::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  std::vector<std::string> api_keys;
  std::vector<std::string> allowed_origins;
  std::string certfile, keyfile;  // both or none
  HttpLimits http;
  std::chrono::milliseconds idle_limit{75'000};   // between requests
  std::chrono::milliseconds head_limit{20'000};   // from a request's first byte to its header's end
  std::chrono::milliseconds body_limit{60'000};   // for the body
  std::chrono::milliseconds write_limit{30'000};  // for a reader to take some bytes
  std::chrono::milliseconds socket_limit{60 * 60 * 1000};  // of a WebSocket's life
  uint32_t connections_max = 16'384;
  uint32_t workers = 2;
  std::string network = "io_uring";  // for /version and logs
};

class Service {
 public:
  static constexpr size_t kResponseStoreBytes = size_t{256} << 20;

  explicit Service(const ServerOptions& options)
      : options(options),
        access(options.api_keys, options.allowed_origins, options.host),
        pool({.threads = options.workers, .jobs_max = 4096}) {}

  const ServerOptions options;
  const Access access;
  WorkerPool pool;
  Metrics metrics;
  // Responses that may be continued, of all clients.
  const std::shared_ptr<ResponseStore> responses =
      std::make_shared<ResponseStore>(kResponseStoreBytes);
  std::shared_ptr<const ServedModel> model;  // null while loading
  std::string load_error;                    // why it will never come
  StopFlag drain;                            // finish what runs, take nothing new
  uint32_t traces = 0;                       // being recorded for clients
};

}  // namespace spillway::server
