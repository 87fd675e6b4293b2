#include "server/responses_session.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>

#include "runtime/scope.h"
#include "server/api/json_reader.h"
#include "server/response_lanes.h"
#include "server/websocket.h"

namespace spillway::server {
namespace {

constexpr size_t kQueuedBytesMax = 8 << 20;    // events not yet sent; past it none is added
constexpr size_t kWaitingBytesMax = 64 << 20;  // of messages not yet begun; past it none is read

class ResponsesSession {
 public:
  ResponsesSession(Service& service, Connection& connection, std::string tenant, StopFlag& stop)
      : service_(service),
        stop_(stop),
        socket_(connection, wake_,
                {.message_bytes = service.options.http.body_bytes,
                 .write = service.options.write_limit}),
        scope_(connection.stream().get_executor()),
        lanes_(service, socket_, wake_, scope_, connection.stream().get_executor(),
               std::move(tenant)),
        lifetime_(connection.stream().get_executor()) {
    service.metrics.websocket_opened();
  }
  ~ResponsesSession() { service_.metrics.websocket_closed(); }

  Task<> run(RequestHead head, HeaderFields fields);

 private:
  // A flag that stops wakes the session, which then looks at it.
  struct Waker final : StopListener {
    Waker(StopFlag& flag, Wake& by) : wake(by) {
      if (!flag.stopped()) flag.add(*this);
    }
    ~Waker() {
      if (linked()) unlink();
    }
    void on_stop() override { wake.notify(); }
    Wake& wake;
  };

  void turn();
  Task<> take_message(std::string text);
  void handle(json::object event, size_t bytes);

  Service& service_;
  StopFlag& stop_;
  Wake wake_;
  WebSocket socket_;
  Scope scope_;
  ResponseLanes lanes_;
  asio::steady_timer lifetime_;
  bool timer_pending_ = false;
  bool too_old_ = false;
  bool parsing_ = false;
};

Task<> ResponsesSession::run(RequestHead head, HeaderFields fields) {
  const Waker on_stop(stop_, wake_), on_drain(service_.drain, wake_);
  if (co_await socket_.accept(head, fields)) {
    lifetime_.expires_after(service_.options.socket_limit);
    timer_pending_ = true;
    lifetime_.async_wait([this](error_code error) {
      timer_pending_ = false;
      too_old_ = !error;
      wake_.notify();
    });
    while (!socket_.ended()) {
      turn();
      co_await wake_.wait();
    }
  }
  lanes_.leave();
  lifetime_.cancel();
  while (timer_pending_) co_await wake_.wait();
  co_await scope_.join();
  co_await socket_.finish();
}

// Looks at everything that may have happened.
void ResponsesSession::turn() {
  if (stop_.stopped()) {
    lanes_.fail_running(
        {.status = 503, .message = "the server is shutting down", .code = "server_error"});
    return socket_.close(1001, "the server is shutting down");
  }
  if (too_old_) {
    const auto minutes =
        std::chrono::duration_cast<std::chrono::minutes>(service_.options.socket_limit);
    lanes_.send_error({.status = 400,
                       .message = "this connection has reached its age limit of " +
                                  std::to_string(minutes.count()) + " minutes: open a new one",
                       .code = "websocket_connection_limit_reached"},
                      std::nullopt);
    return socket_.close(1001, "connection limit reached");
  }
  if (socket_.take_began()) lanes_.prefetch(std::nullopt);
  // A client that is behind gets no more events and is asked for no more messages until it has read
  // some: the output queue's own bound then decides who is given up (case H3).
  const bool behind = socket_.queued_bytes() > kQueuedBytesMax;
  if (!behind) lanes_.take_outputs();
  if (!behind && !parsing_ && lanes_.waiting_bytes() <= kWaitingBytesMax) {
    if (auto message = socket_.take_message()) {
      parsing_ = true;
      scope_.spawn(take_message(std::move(*message)));
    }
  }
  lanes_.start_waiting();
  if (lanes_.overflowed()) {
    socket_.close(1008, "the events are not read");
  } else if (service_.drain.stopped() && !parsing_ && lanes_.idle()) {
    socket_.close(1001, "the server is shutting down");
  }
}

Task<> ResponsesSession::take_message(std::string text) {
  // Long messages are parsed away from the network thread; their order stays.
  const size_t bytes = text.size();
  auto parse = [text = std::move(text)] {
    return std::make_unique<ApiResult<json::object>>(read_json_object(text));
  };
  auto parsed = co_await service_.pool.run(std::move(parse));
  parsing_ = false;
  wake_.notify();
  if (!parsed) {
    lanes_.send_error(from_error(parsed.error()), std::nullopt);
  } else if (!**parsed) {
    lanes_.send_error((*parsed)->error(), std::nullopt);
  } else {
    handle(std::move(***parsed), bytes);
  }
}

void ResponsesSession::handle(json::object event, size_t bytes) {
  const json::value* type = event.if_contains("type");
  if (type != nullptr && *type == "response.create") {
    lanes_.create(std::move(event), bytes);
  } else if (type != nullptr && *type == "response.steer") {
    lanes_.steer(event);
  } else if (type != nullptr && *type == "spillway:prefetch") {
    lanes_.prefetch(event);
  } else {
    lanes_.send_error(bad_field("type", "'type' must be response.create or response.steer"),
                      std::nullopt);
  }
}

}  // namespace

Task<> serve_responses_socket(Service& service, Connection& connection, RequestHead head,
                              HeaderFields fields, std::string tenant, StopFlag& stop) {
  ResponsesSession session(service, connection, std::move(tenant), stop);
  co_await session.run(std::move(head), std::move(fields));
}

}  // namespace spillway::server
