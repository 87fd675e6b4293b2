// Outputs of one job on their way from the engine thread to the session on the network thread.
// Bounded in bytes: past the bound it takes nothing more and says so; the session then gives the
// reader up (case H3). Shared with the engine's sinks, so a session may leave before the engine is
// done with its requests.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "scheduler/request.h"
#include "server/wake.h"

namespace spillway::server {

class OutputQueue : public std::enable_shared_from_this<OutputQueue> {
 public:
  static constexpr size_t kBytesMax = 8 << 20;
  using Item = std::pair<uint32_t, scheduler::Output>;  // the request's index in its job

  // `wake` is notified on `executor`, which must outlive the engine's use of the sinks.
  OutputQueue(boost::asio::any_io_executor executor, Wake& wake);

  // A sink for the job's request `index`. Any thread may call it.
  std::shared_ptr<scheduler::OutputSink> sink(uint32_t index);

  // Network thread. What has arrived, in order.
  std::vector<Item> take();
  bool overflowed();
  // Network thread: the session leaves; nothing is kept or notified any more.
  void detach();

 private:
  class Sink;
  void push(uint32_t index, scheduler::Output output);

  boost::asio::any_io_executor executor_;
  Wake* wake_;  // network thread; null once detached
  std::mutex mutex_;
  std::vector<Item> items_;  // below: under mutex_
  size_t bytes_ = 0;
  bool overflowed_ = false;
  bool detached_ = false;
};

}  // namespace spillway::server
