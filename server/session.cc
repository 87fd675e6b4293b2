#include "server/session.h"

#include <algorithm>

#include "runtime/log.h"
#include "server/api/random_id.h"
#include "server/connection.h"
#include "server/page.h"
#include "server/respond.h"
#include "server/responses_session.h"
#include "server/routes.h"
#include "server/run_job.h"
#include "server/websocket.h"

namespace spillway::server {
namespace {

using Clock = std::chrono::steady_clock;

// Interrupts the connection's waits when a flag stops.
class Interrupter final : public StopListener {
 public:
  Interrupter(StopFlag& flag, Connection& connection) : connection_(connection) {
    if (flag.stopped()) {
      connection_.interrupt();
    } else {
      flag.add(*this);
    }
  }
  ~Interrupter() {
    if (linked()) unlink();
  }
  void on_stop() override { connection_.interrupt(); }

 private:
  Connection& connection_;
};

// Wakes a session that waits for its next request; it then looks at the flag.
class DrainWaker final : public StopListener {
 public:
  DrainWaker(StopFlag& flag, Connection& connection) : connection_(connection) {
    if (!flag.stopped()) flag.add(*this);
  }
  ~DrainWaker() {
    if (linked()) unlink();
  }
  void on_stop() override { connection_.wake_idle(); }

 private:
  Connection& connection_;
};

std::string request_id(const RequestHead& head) {
  const std::string_view given = head.field("x-request-id");
  const bool usable =
      !given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_' || c == '.';
      });
  return usable ? std::string(given) : random_id("req-");
}

HeaderFields common_fields(const Service& service, const RequestHead& head, const std::string& id) {
  HeaderFields fields{{"x-request-id", id}};
  if (std::string origin = service.access.allow_origin(head); !origin.empty()) {
    fields.emplace_back("access-control-allow-origin", origin);
    fields.emplace_back("access-control-expose-headers", "x-request-id");
    fields.emplace_back("vary", "origin");
  }
  return fields;
}

// The headers that a page wants to send, if they can be header names at all.
std::string wanted_headers(const RequestHead& head) {
  const std::string_view asked = head.field("access-control-request-headers");
  const bool plain = std::all_of(asked.begin(), asked.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == ',' || c == ' ';
  });
  return plain && !asked.empty() && asked.size() <= 2048
             ? std::string(asked)
             : std::string("authorization, content-type, x-api-key");
}

Response preflight(const RequestHead& head) {
  return {.status = 204,
          .content_type = "",
          .fields = {{"access-control-allow-methods", "GET, POST, DELETE, OPTIONS"},
                     {"access-control-allow-headers", wanted_headers(head)},
                     {"access-control-max-age", "600"}}};
}

// What comes of reading a request: go on, or end the connection, perhaps with a last word.
struct Outcome {
  bool complete = false;
  std::optional<ApiError> error = std::nullopt;
};

// Feeds the parser until it leaves `phase`.
Task<Outcome> read_phase(Service& service, Connection& connection, HttpParser& parser,
                         HttpParser::State phase, Clock::time_point deadline) {
  while (parser.state() == phase) {
    const size_t before = connection.received().size();
    if (before > 0) connection.consume(parser.put(connection.received()));
    if (parser.state() != phase) break;
    if (connection.received().size() >= Connection::kInboundMax) {
      co_return Outcome{.error = ApiError{.status = 400, .message = "the request cannot be read"}};
    }
    const bool idle = phase == HttpParser::State::kHead && connection.received().empty();
    if (idle && service.drain.stopped()) co_return Outcome{};
    const auto limit = idle ? Clock::now() + service.options.idle_limit : deadline;
    const auto fill = co_await connection.fill(limit);
    if (fill == Connection::Fill::kBytes) {
      if (idle) deadline = Clock::now() + service.options.head_limit;
      continue;
    }
    if (fill == Connection::Fill::kTimeout && !idle) {
      co_return Outcome{.error = ApiError{.status = 408,
                                          .type = "timeout_error",
                                          .message = "the request took too long to arrive",
                                          .code = "request_timeout"}};
    }
    if (fill == Connection::Fill::kInterrupted && !connection.interrupted()) continue;
    co_return Outcome{};
  }
  if (parser.state() == HttpParser::State::kFailed) co_return Outcome{.error = parser.error()};
  co_return Outcome{.complete = true};
}

// A refusal after which the connection cannot be used: what follows is not understood.
Task<> refuse(Service& service, Connection& connection, ApiError error) {
  Responder responder(connection, service.options.write_limit, false, false, false,
                      {{"x-request-id", random_id("req-")}});
  service.metrics.count_http("other", error.status);
  co_await responder.send(error_response(error));
}

Task<bool> answer_request(Service& service, Connection& connection, Responder& responder,
                          Request request) {
  const auto start = Clock::now();
  const std::string id = request.id;
  const std::string route(route_name(request.head.path()));
  const std::string method = request.head.method;
  Answer result = co_await answer(service, connection, std::move(request));
  bool sent = false;
  if (Response* response = std::get_if<Response>(&result)) {
    sent = co_await responder.send(std::move(*response));
  } else {
    sent = co_await run_job(service, connection, responder, std::get<Job>(std::move(result)));
  }
  service.metrics.count_http(route, responder.started() ? responder.status() : 499);
  const bool polled = route == "/health" || route == "/metrics" || route == "/ping";
  spdlog::log(polled ? spdlog::level::debug : spdlog::level::info,
              "http method={} path={} status={} ms={:.1f} id={}", method, route,
              responder.started() ? responder.status() : 499,
              std::chrono::duration<double, std::milli>(Clock::now() - start).count(), id);
  co_return sent;
}

// Refused before its body was read. A small body is read all the same, to keep the connection.
Response refusal(const ApiError& error, const RequestHead& head) {
  Response response = error_response(error);
  if (error.status == 401) {
    const bool page = is_page(head.path());  // a browser then asks for the key
    response.fields.emplace_back("www-authenticate", page ? "Basic realm=\"spillway\"" : "Bearer");
  }
  if (error.status == 405) {
    response.fields.emplace_back("allow", std::string(allowed_methods(head.path())));
  }
  return response;
}

// One request and its answer. False: the connection ends.
Task<bool> serve_request(Service& service, Connection& connection, StopFlag& stop) {
  std::optional<HttpParser> parsing(service.options.http);
  HttpParser& parser = *parsing;
  const auto head_deadline = Clock::now() + service.options.head_limit;
  Outcome read =
      co_await read_phase(service, connection, parser, HttpParser::State::kHead, head_deadline);
  if (read.error) co_await refuse(service, connection, *read.error);
  if (!read.complete) co_return false;

  Request request{.id = request_id(parser.head()), .head = parser.head(), .body = {}, .tenant = {}};
  const RequestHead& head = request.head;
  Responder responder(connection, service.options.write_limit, head.http10,
                      head.keep_alive && !service.drain.stopped(), head.method == "HEAD",
                      common_fields(service, head, request.id));
  const bool is_preflight = head.method == "OPTIONS";
  auto admitted = admit(service, head);
  std::optional<Response> early;
  if (is_preflight && service.access.origin_ok(head)) {
    early = preflight(head);
  } else if (!admitted) {
    early = refusal(admitted.error(), head);
  }
  if (!early && route_name(head.path()) == "/v1/responses" && WebSocket::is_upgrade(head)) {
    // A read left over from a request before this one would take the socket's first bytes.
    if (!connection.reading() && !head.has_body && !service.drain.stopped()) {
      service.metrics.count_http(route_name(head.path()), 101);
      parsing.reset();  // idle sockets are many: its memory goes back
      co_await serve_responses_socket(service, connection, head,
                                      common_fields(service, head, request.id),
                                      std::move(*admitted), stop);
      co_return false;
    }
    early = error_response({.status = 503,
                            .type = "service_unavailable_error",
                            .message = "this connection cannot become a WebSocket now: open a new "
                                       "one",
                            .code = "websocket_not_possible"});
  }
  if (early && head.has_body) responder.end_connection();
  if (early) {
    service.metrics.count_http(route_name(head.path()), early->status);
    const bool sent = co_await responder.send(std::move(*early));
    co_return sent&& responder.keep_alive();
  }
  if (head.has_body) {
    if (head.expects_continue && !head.http10 && connection.received().empty()) {
      if (!co_await connection.write("HTTP/1.1 100 Continue\r\n\r\n",
                                     service.options.write_limit)) {
        co_return false;
      }
    }
    read = co_await read_phase(service, connection, parser, HttpParser::State::kBody,
                               Clock::now() + service.options.body_limit);
    if (read.error) co_await refuse(service, connection, *read.error);
    if (!read.complete) co_return false;
  }
  request.body = parser.take_body();
  request.tenant = std::move(*admitted);
  const bool sent = co_await answer_request(service, connection, responder, std::move(request));
  co_return sent&& responder.keep_alive();
}

}  // namespace

Task<> serve_connection(Service& service, std::unique_ptr<Stream> stream, StopFlag& stop) {
  Connection connection(std::move(stream));
  service.metrics.connection_opened();
  {
    const Interrupter interrupter(stop, connection);
    const DrainWaker drain_waker(service.drain, connection);
    bool open = co_await connection.handshake(service.options.head_limit);
    while (open) open = co_await serve_request(service, connection, stop);
  }
  co_await connection.finish(true);
  service.metrics.connection_closed();
}

}  // namespace spillway::server
