#include "server/run_job.h"

#include <boost/json/object.hpp>

#include "server/api/json_text.h"
#include "server/api/usage.h"
#include "server/job_watch.h"
#include "server/output_queue.h"

namespace spillway::server {
namespace {

// The job's requests in the engine. Those not done are cancelled when it dies.
class Submitted {
 public:
  Submitted(Job& job, asio::any_io_executor executor, Wake& wake)
      : backend_(*job.model->backend),
        queue_(std::make_shared<OutputQueue>(std::move(executor), wake)) {}
  ~Submitted() {
    queue_->detach();
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (!done_[i]) backend_.cancel(ids_[i]);
    }
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  ApiResult<> submit(std::vector<scheduler::Request> requests) {
    for (scheduler::Request& request : requests) {
      const auto index = static_cast<uint32_t>(ids_.size());
      auto id = backend_.submit(std::move(request), queue_->sink(index));
      if (!id) return from_error(id.error());
      ids_.push_back(*id);
      done_.push_back(false);
      ++open_;
    }
    return {};
  }
  void mark_done(uint32_t index) {
    if (done_[index]) return;
    done_[index] = true;
    --open_;
  }
  bool all_done() const { return open_ == 0; }
  OutputQueue& queue() { return *queue_; }

 private:
  Backend& backend_;
  std::shared_ptr<OutputQueue> queue_;
  std::vector<scheduler::RequestId> ids_;
  std::vector<bool> done_;
  size_t open_ = 0;
};

ApiError shutting_down() {
  return {.status = 503,
          .type = "service_unavailable_error",
          .message = "the server is shutting down",
          .code = "cancelled"};
}

// Takes all outputs that have arrived; events for the wire are appended to `wire`. Returns how
// many there were.
ApiResult<size_t> take_outputs(Submitted& submitted, Job& job, JobWatch& watch, std::string& wire) {
  const auto outputs = submitted.queue().take();
  for (const auto& [index, output] : outputs) {
    if (output.waiting) {
      if (job.stream) append_comment(wire, "spillway " + to_json(waiting_object(*output.waiting)));
      continue;
    }
    watch.see(output);
    if (output.done) submitted.mark_done(index);
    if (auto taken = job.reply->take(index, output, wire); !taken) return taken.error();
    if (output.done) watch.end(output);
  }
  return {boost::system::in_place_value, outputs.size()};
}

// Sends events as they come until all requests are done. Nothing: the client is gone. A reply that
// is no stream collects instead.
Task<std::optional<ApiResult<>>> relay(Connection& connection, Responder& responder, Job& job,
                                       Submitted& submitted, JobWatch& watch, std::string& wire) {
  for (;;) {
    connection.watch();
    if (connection.peer_gone() || submitted.queue().overflowed()) co_return std::nullopt;
    const auto taken = take_outputs(submitted, job, watch, wire);
    if (!taken) co_return ApiResult<>(taken.error());
    if (submitted.all_done()) co_return ApiResult<>();
    if (connection.interrupted()) co_return ApiResult<>(shutting_down());
    if (job.stream && !wire.empty()) {
      std::string events;
      std::swap(events, wire);
      const bool sent = co_await responder.send_events(std::move(events), false);
      if (!sent) co_return std::nullopt;
    } else if (*taken == 0) {
      // Only after a look at everything: a wake that came during a write is spent.
      co_await connection.wake().wait();
    }
  }
}

}  // namespace

Task<bool> run_job(Service& service, Connection& connection, Responder& responder, Job job) {
  Submitted submitted(job, connection.stream().get_executor(), connection.wake());
  JobWatch watch(service.metrics);
  std::optional<ApiResult<>> outcome = submitted.submit(std::move(job.requests));
  std::string wire;
  if (outcome->has_value()) {
    job.reply->begin(wire);
    outcome = co_await relay(connection, responder, job, submitted, watch, wire);
  }
  if (!outcome) {
    service.metrics.observe_failed("abort");
    co_return false;
  }
  if (outcome->has_value()) {
    job.reply->finish(wire);
    if (job.stream) co_return co_await responder.send_events(std::move(wire), true);
    Response whole;
    whole.body = std::move(wire);
    co_return co_await responder.send(std::move(whole));
  }
  service.metrics.observe_failed("error");
  if (!responder.started()) {
    Response refusal = error_response(outcome->error());
    co_return co_await responder.send(std::move(refusal));
  }
  job.reply->fail(outcome->error(), wire);
  co_return co_await responder.send_events(std::move(wire), true);
}

}  // namespace spillway::server
