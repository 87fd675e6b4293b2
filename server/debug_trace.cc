#include "server/debug_trace.h"

#include <boost/asio/steady_timer.hpp>
#include <charconv>

#include "runtime/suspend.h"

namespace spillway::server {
namespace {

// The seconds that the query asks for.
ApiResult<double> seconds_of(std::string_view target) {
  const size_t mark = target.find('?');
  std::string_view query = mark == target.npos ? "" : target.substr(mark + 1);
  double seconds = kTraceSecondsDefault;
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    constexpr std::string_view kName = "seconds=";
    const std::string_view value = field.starts_with(kName) ? field.substr(kName.size()) : "";
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
    const bool whole = error == std::errc{} && end == value.data() + value.size();
    if (!whole || !(seconds > 0 && seconds <= kTraceSecondsMax)) {
      return ApiError{.status = 400,
                      .message =
                          "seconds must be more than 0 and at most 60, as in "
                          "/debug/trace?seconds=5; there are no other parameters",
                      .param = "seconds",
                      .code = "invalid_value"};
    }
  }
  return ApiResult<double>(boost::system::in_place_value, seconds);
}

// Waits for a time, or until a flag stops or the connection's client is gone.
class Pause final : public StopListener {
 public:
  Pause(Connection& connection, StopFlag& stop, std::chrono::duration<double> time)
      : connection_(connection),
        timer_(connection.stream().get_executor(),
               std::chrono::duration_cast<std::chrono::steady_clock::duration>(time)) {
    if (stop.stopped()) timer_.expires_after(std::chrono::seconds(0));
    timer_.async_wait([this](boost::system::error_code) {
      over_ = true;
      connection_.wake().notify();
    });
    if (!stop.stopped()) stop.add(*this);
  }
  ~Pause() {
    if (linked()) unlink();
  }
  // Ends when the timer's handler has run, so that nothing of it outlives this.
  Task<> wait() {
    while (!over_) {
      connection_.watch();
      if (connection_.peer_gone() || connection_.interrupted()) timer_.cancel();
      co_await connection_.wake().wait();
    }
  }
  void on_stop() override { timer_.cancel(); }

 private:
  Connection& connection_;
  asio::steady_timer timer_;
  bool over_ = false;
};

// Waits for the engine's call, which comes on its thread.
struct TakeOp {
  Backend& backend;
  const Clock::TimePoint begin;
  std::optional<std::string> tenant;
  std::shared_ptr<TraceSnapshot> taken = std::make_shared<TraceSnapshot>();

  void start(Resumer resumer) {
    auto shared = std::make_shared<Resumer>(std::move(resumer));
    backend.take_trace(begin, std::move(tenant), [to = taken, shared](TraceSnapshot snapshot) {
      *to = std::move(snapshot);
      shared->resume();
    });
  }
};

}  // namespace

Task<Answer> debug_trace(Service& service, Connection& connection, Request request) {
  const ApiResult<double> seconds = seconds_of(request.head.target);
  if (!seconds) co_return error_response(seconds.error());
  if (service.traces >= kTracesMax) {
    co_return error_response({.status = 429,
                              .type = "rate_limit_error",
                              .message = "several timelines are being recorded: try again when "
                                         "they have ended",
                              .code = "too_many_traces"});
  }
  const std::shared_ptr<Backend> backend = service.model->backend;
  ++service.traces;
  const Clock::TimePoint begin = std::chrono::steady_clock::now();
  backend->start_trace();
  Pause pause(connection, service.drain, std::chrono::duration<double>(*seconds));
  co_await pause.wait();
  std::optional<std::string> tenant;
  if (service.access.has_tenants()) tenant = std::move(request.tenant);
  TakeOp op{*backend, begin, std::move(tenant)};
  co_await suspend(op);
  --service.traces;
  auto work = [taken = op.taken] { return trace_json(*taken); };
  auto text = co_await service.pool.run(std::move(work));
  if (!text) co_return error_response(from_error(text.error()));
  co_return Response{
      .body = std::move(*text),
      .fields = {{"content-disposition", "attachment; filename=\"spillway-trace.json\""}}};
}

}  // namespace spillway::server
