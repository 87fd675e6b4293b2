#include "server/responses_session.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json.hpp>
#include <deque>
#include <map>
#include <set>

#include "runtime/log.h"
#include "runtime/scope.h"
#include "server/api/json_reader.h"
#include "server/api/json_text.h"
#include "server/api/random_id.h"
#include "server/api/response_items.h"
#include "server/api/responses.h"
#include "server/job_watch.h"
#include "server/output_queue.h"
#include "server/websocket.h"

namespace spillway::server {
namespace {

constexpr size_t kLanesMax = 64;
constexpr size_t kWaitingMax = 256;            // response.create events not yet begun, all lanes
constexpr size_t kSteersMax = 16;              // of one response
constexpr size_t kQueuedBytesMax = 8 << 20;    // events not yet sent; past it none is added
constexpr size_t kWaitingBytesMax = 64 << 20;  // of messages not yet begun; past it none is read
constexpr size_t kLaneNameMax = 128;
constexpr size_t kConnectionStoreBytes = 32 << 20;
constexpr std::chrono::minutes kLifetime{60};

struct Steer {
  std::string id;
  json::value input;
};

struct Lane {
  std::optional<std::string> name;                      // stream_id
  std::string session;                                  // of its soft lease
  std::deque<std::pair<json::object, size_t>> waiting;  // response.create bodies, bytes of each
  bool preparing = false;

  // The response that runs.
  std::optional<ResponseCall> call;
  json::object body;   // its response.create
  uint32_t index = 0;  // in the output queue
  scheduler::RequestId request{};
  std::vector<Steer> steers;
  std::optional<JobWatch> watch;

  bool busy() const { return preparing || call.has_value(); }
};

json::object error_event(const ApiError& error, const std::optional<std::string>& lane) {
  json::object details{{"type", error.type}, {"message", error.message}};
  details["code"] = nullptr;
  details["param"] = nullptr;
  if (!error.code.empty()) details["code"] = error.code;
  if (!error.param.empty()) details["param"] = error.param;
  json::object event{{"type", "error"}, {"status", error.status}, {"error", std::move(details)}};
  if (lane) event["stream_id"] = *lane;
  return event;
}

class ResponsesSession {
 public:
  ResponsesSession(Service& service, Connection& connection, std::string tenant, StopFlag& stop)
      : service_(service),
        stop_(stop),
        socket_(connection, wake_, {.message_bytes = service.options.http.body_bytes}),
        outputs_(std::make_shared<OutputQueue>(connection.stream().get_executor(), wake_)),
        scope_(connection.stream().get_executor()),
        lifetime_(connection.stream().get_executor()),
        tenant_(std::move(tenant)),
        name_(random_id("ws-")),
        kept_(std::make_shared<ResponseStore>(kConnectionStoreBytes)) {}

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
  void handle_create(json::object event, size_t bytes);
  void handle_steer(const json::object& event);
  Task<> prepare(Lane& lane, json::object body);
  void begin(Lane& lane, ResponseCall call, json::object body);
  void take_outputs();
  void end_response(Lane& lane);
  void drop_idle_lane();
  void start_waiting();
  void successor(Lane& lane, std::vector<Steer> steers, const std::string& previous);
  void send(json::object event, const std::optional<std::string>& lane);
  void send_all(ResponseEvents::Events events, const Lane& lane);
  void send_error(const ApiError& error, const std::optional<std::string>& lane) {
    socket_.send(to_json(error_event(error, lane)));
  }
  void fail_steer(const Steer& steer, const std::string& previous, std::string code,
                  std::string message, const std::optional<std::string>& lane);
  void leave();
  bool idle() const;
  ResponseContext context(const Lane& lane) const {
    return {tenant_, lane.session, service_.responses, kept_};
  }

  Service& service_;
  StopFlag& stop_;
  Wake wake_;
  WebSocket socket_;
  std::shared_ptr<OutputQueue> outputs_;
  Scope scope_;
  asio::steady_timer lifetime_;
  bool timer_pending_ = false;
  bool too_old_ = false;
  const std::string tenant_;
  const std::string name_;
  std::shared_ptr<ResponseStore> kept_;                 // store: false
  std::map<std::string, std::unique_ptr<Lane>> lanes_;  // "" is no stream_id, else "=" + it
  std::set<std::string> ended_responses_;
  std::deque<std::string> ended_order_;
  std::shared_ptr<const ServedModel> model_;
  size_t waiting_ = 0;
  size_t waiting_bytes_ = 0;
  uint32_t next_index_ = 0;
  bool parsing_ = false;
};

Task<> ResponsesSession::run(RequestHead head, HeaderFields fields) {
  const Waker on_stop(stop_, wake_), on_drain(service_.drain, wake_);
  if (co_await socket_.accept(head, fields)) {
    lifetime_.expires_after(kLifetime);
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
  leave();
  while (timer_pending_) co_await wake_.wait();
  co_await scope_.join();
  co_await socket_.finish();
}

// Looks at everything that may have happened.
void ResponsesSession::turn() {
  if (stop_.stopped()) {
    for (auto& [key, lane] : lanes_) {
      if (!lane->call) continue;
      ResponseEvents::Events events;
      lane->call->events->fail(
          {.status = 503, .message = "the server is shutting down", .code = "server_error"},
          events);
      send_all(std::move(events), *lane);
    }
    socket_.close(1001, "the server is shutting down");
    return;
  }
  if (too_old_) {
    send_error({.status = 400,
                .message = "this connection is 60 minutes old: open a new one",
                .code = "websocket_connection_limit_reached"},
               std::nullopt);
    socket_.close(1001, "connection limit reached");
    return;
  }
  // A client that is behind gets no more events and is asked for no more messages until it has read
  // some: the output queue's own bound then decides who is given up (case H3).
  const bool behind = socket_.queued_bytes() > kQueuedBytesMax;
  if (!behind) take_outputs();
  if (!behind && !parsing_ && waiting_bytes_ <= kWaitingBytesMax) {
    if (auto message = socket_.take_message()) {
      parsing_ = true;
      scope_.spawn(take_message(std::move(*message)));
    }
  }
  start_waiting();
  if (outputs_->overflowed()) {
    socket_.close(1008, "the events are not read");
  } else if (service_.drain.stopped() && idle()) {
    socket_.close(1001, "the server is shutting down");
  }
}

bool ResponsesSession::idle() const {
  if (parsing_ || waiting_ > 0) return false;
  for (const auto& [key, lane] : lanes_) {
    if (lane->busy()) return false;
  }
  return true;
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
    send_error(from_error(parsed.error()), std::nullopt);
  } else if (!**parsed) {
    send_error((*parsed)->error(), std::nullopt);
  } else {
    handle(std::move(***parsed), bytes);
  }
}

void ResponsesSession::handle(json::object event, size_t bytes) {
  const json::value* type = event.if_contains("type");
  if (type != nullptr && *type == "response.create") {
    handle_create(std::move(event), bytes);
  } else if (type != nullptr && *type == "response.steer") {
    handle_steer(event);
  } else {
    send_error(bad_field("type", "'type' must be response.create or response.steer"), std::nullopt);
  }
}

void ResponsesSession::handle_create(json::object event, size_t bytes) {
  std::optional<std::string> name;
  if (const json::value* given = event.if_contains("stream_id"); given && !given->is_null()) {
    const json::string* text = given->if_string();
    if (text == nullptr || text->empty() || text->size() > kLaneNameMax) {
      return send_error(bad_field("stream_id", "'stream_id' must be a string of 1 to 128 bytes"),
                        std::nullopt);
    }
    name = std::string(text->data(), text->size());
  }
  const std::string key = name ? "=" + *name : std::string();
  if (!lanes_.contains(key) && lanes_.size() >= kLanesMax) drop_idle_lane();
  if (waiting_ >= kWaitingMax || (!lanes_.contains(key) && lanes_.size() >= kLanesMax)) {
    return send_error({.status = 429,
                       .type = "rate_limit_error",
                       .message = "too many responses wait on this connection",
                       .code = "rate_limit_exceeded"},
                      name);
  }
  if (service_.drain.stopped()) {
    return send_error({.status = 503,
                       .type = "service_unavailable_error",
                       .message = "the server is shutting down"},
                      name);
  }
  for (const char* own : {"type", "stream_id", "stream", "stream_options"}) event.erase(own);
  auto& lane = lanes_[key];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
    lane->name = name;
    lane->session = name_ + key;
  }
  lane->waiting.emplace_back(std::move(event), bytes);
  ++waiting_;
  waiting_bytes_ += bytes;
}

// A lane that does nothing makes room for a new one, and its soft lease ends.
void ResponsesSession::drop_idle_lane() {
  const auto idle = std::find_if(lanes_.begin(), lanes_.end(), [](const auto& entry) {
    return !entry.second->busy() && entry.second->waiting.empty();
  });
  if (idle == lanes_.end()) return;
  if (model_ != nullptr) model_->backend->end_session(idle->second->session);
  lanes_.erase(idle);
}

void ResponsesSession::start_waiting() {
  for (auto& [key, lane] : lanes_) {
    if (lane->busy() || lane->waiting.empty()) continue;
    json::object body = std::move(lane->waiting.front().first);
    waiting_bytes_ -= lane->waiting.front().second;
    lane->waiting.pop_front();
    --waiting_;
    lane->preparing = true;
    scope_.spawn(prepare(*lane, std::move(body)));
  }
}

Task<> ResponsesSession::prepare(Lane& lane, json::object body) {
  model_ = service_.model;
  ApiResult<ResponseCall> call = ApiError{.status = 503,
                                          .type = "service_unavailable_error",
                                          .message = "the model is still loading",
                                          .code = "model_not_ready"};
  if (model_ != nullptr) {
    auto work = [model = model_, body, where = context(lane)] {
      return std::make_unique<ApiResult<ResponseCall>>(prepare_response(model, body, where));
    };
    auto prepared = co_await service_.pool.run(std::move(work));
    if (prepared) {
      call = std::move(**prepared);
    } else {
      call = from_error(prepared.error());
    }
  }
  lane.preparing = false;
  wake_.notify();
  if (socket_.ended()) co_return;
  if (call) {
    begin(lane, std::move(*call), std::move(body));
    co_return;
  }
  // A continuation that fails loses its state on this connection.
  if (const json::value* previous = body.if_contains("previous_response_id")) {
    if (const json::string* id = previous->if_string()) {
      kept_->erase(std::string(id->data(), id->size()));
    }
  }
  send_error(call.error(), lane.name);
}

void ResponsesSession::begin(Lane& lane, ResponseCall call, json::object body) {
  lane.index = next_index_++;
  auto id = model_->backend->submit(call.request, outputs_->sink(lane.index));
  if (!id) return send_error(from_error(id.error()), lane.name);
  lane.request = *id;
  lane.call = std::move(call);
  lane.body = std::move(body);
  lane.watch.emplace(service_.metrics);
  ResponseEvents::Events events;
  lane.call->events->open(events);
  send_all(std::move(events), lane);
}

void ResponsesSession::take_outputs() {
  for (auto& [index, output] : outputs_->take()) {
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const auto& entry) {
      return entry.second->call && entry.second->index == index;
    });
    if (found == lanes_.end()) continue;
    Lane& lane = *found->second;
    ResponseEvents::Events events;
    const bool steered =
        output.finish == scheduler::FinishReason::kCancelled && !lane.steers.empty();
    if (steered) {
      lane.call->events->mark_steered();
      output.finish = scheduler::FinishReason::kLength;
    }
    lane.watch->see(output);
    if (auto ended = check_finish(output); !ended) {
      lane.call->events->fail(ended.error(), events);
      service_.metrics.observe_failed("error");
    } else {
      lane.call->events->take(output, events);
    }
    send_all(std::move(events), lane);
    if (output.done) {
      if (lane.call->events->completed()) lane.watch->end(output);
      end_response(lane);
    }
  }
}

void ResponsesSession::end_response(Lane& lane) {
  const std::string id = lane.call->id;
  if (lane.call->events->completed()) {
    keep_response(*lane.call, context(lane));
  } else if (const json::value* previous = lane.body.if_contains("previous_response_id");
             previous != nullptr && previous->is_string()) {
    kept_->erase(std::string(previous->get_string().c_str()));
  }
  ended_responses_.insert(id);
  ended_order_.push_back(id);
  if (ended_order_.size() > 1024) {
    ended_responses_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
  const bool completed = lane.call->events->completed();
  std::vector<Steer> steers = std::exchange(lane.steers, {});
  if (steers.empty()) {
    lane.call.reset();
  } else if (completed) {
    successor(lane, std::move(steers), id);
  } else {
    for (const Steer& steer : steers) {
      fail_steer(steer, id, "successor_creation_failed", "the response failed", lane.name);
    }
    lane.call.reset();
  }
}

// Goes on from a response with the input that was queued for it, before what waits in the lane.
void ResponsesSession::successor(Lane& lane, std::vector<Steer> steers,
                                 const std::string& previous) {
  json::object body = std::exchange(lane.body, {});
  lane.call.reset();
  json::array input;
  for (Steer& steer : steers) {
    if (json::array* items = steer.input.if_array()) {
      for (json::value& item : *items) input.push_back(std::move(item));
    } else {
      input.push_back(
          json::object{{"type", "message"}, {"role", "user"}, {"content", std::move(steer.input)}});
    }
  }
  body["input"] = std::move(input);
  body["previous_response_id"] = previous;
  body.erase("generate");
  lane.waiting.emplace_front(std::move(body), 0);
  ++waiting_;
  wake_.notify();
}

void ResponsesSession::fail_steer(const Steer& steer, const std::string& previous, std::string code,
                                  std::string message, const std::optional<std::string>& lane) {
  json::object details{{"input", steer.input}, {"previous_response_id", previous}};
  if (!steer.id.empty()) details["id"] = steer.id;
  send({{"type", "response.steer.failed"},
        {"sequence_number", 0},
        {"steer", std::move(details)},
        {"error",
         {{"type", "invalid_request_error"},
          {"code", std::move(code)},
          {"message", std::move(message)}}}},
       lane);
}

void ResponsesSession::handle_steer(const json::object& event) {
  const json::value* target = event.if_contains("previous_response_id");
  const json::value* input = event.if_contains("input");
  if (target == nullptr || !target->is_string() || input == nullptr) {
    return send_error(bad_field("previous_response_id",
                                "response.steer needs 'previous_response_id' and 'input'"),
                      std::nullopt);
  }
  const std::string id(target->get_string().c_str());
  Steer steer{.id = {}, .input = *input};
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const auto& entry) {
    return entry.second->call && entry.second->call->id == id;
  });
  if (found == lanes_.end()) {
    const bool ended = ended_responses_.contains(id);
    return fail_steer(steer, id, ended ? "response_already_completed" : "response_not_found",
                      ended ? "the response has ended: continue it with response.create"
                            : "no such response on this connection",
                      std::nullopt);
  }
  Lane& lane = *found->second;
  auto messages = read_response_input(*input);
  const bool all_user =
      messages && !messages->empty() &&
      std::all_of(messages->begin(), messages->end(), [](const json::value& message) {
        return message.get_object().at("role") == "user";
      });
  if (!all_user) {
    return fail_steer(
        steer, id, "invalid_input",
        messages ? "steering takes messages of the role user only" : messages.error().message,
        lane.name);
  }
  if (lane.steers.size() >= kSteersMax) {
    return fail_steer(steer, id, "too_many_pending_steers",
                      "too much steering input waits for this response", lane.name);
  }
  steer.id = random_id("steer_");
  send({{"type", "response.steer.accepted"},
        {"sequence_number", lane.call->events->take_sequence()},
        {"steer", {{"id", steer.id}, {"previous_response_id", id}}}},
       lane.name);
  lane.steers.push_back(std::move(steer));
  model_->backend->cancel(lane.request);
}

void ResponsesSession::send(json::object event, const std::optional<std::string>& lane) {
  if (lane) event["stream_id"] = *lane;
  socket_.send(to_json(event));
}

void ResponsesSession::send_all(ResponseEvents::Events events, const Lane& lane) {
  for (json::object& event : events) send(std::move(event), lane.name);
}

void ResponsesSession::leave() {
  outputs_->detach();
  lifetime_.cancel();
  for (auto& [key, lane] : lanes_) {
    lane->waiting.clear();
    if (model_ == nullptr) continue;
    if (lane->call) {
      model_->backend->cancel(lane->request);
      service_.metrics.observe_failed("abort");
      lane->call.reset();
    }
    model_->backend->end_session(lane->session);
  }
  waiting_ = 0;
  waiting_bytes_ = 0;
}

}  // namespace

Task<> serve_responses_socket(Service& service, Connection& connection, RequestHead head,
                              HeaderFields fields, std::string tenant, StopFlag& stop) {
  ResponsesSession session(service, connection, std::move(tenant), stop);
  co_await session.run(std::move(head), std::move(fields));
}

}  // namespace spillway::server
