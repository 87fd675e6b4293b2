#include "server/response_lanes.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "server/api/json_text.h"
#include "server/api/random_id.h"

namespace spillway::server {

namespace json = boost::json;

namespace {

constexpr size_t kEndedMax = 1024;  // ids remembered, to tell late steering from wrong steering

ApiError shutting_down() {
  return {
      .status = 503, .type = "service_unavailable_error", .message = "the server is shutting down"};
}

// The event's stream_id; an error if it is none.
ApiResult<std::optional<std::string>> lane_name(const json::object& event) {
  const json::value* given = event.if_contains("stream_id");
  if (given == nullptr || given->is_null()) return std::optional<std::string>();
  const json::string* text = given->if_string();
  if (text == nullptr || text->empty() || text->size() > ResponseLanes::kNameMax) {
    return bad_field("stream_id", "'stream_id' must be a string of 1 to 128 bytes");
  }
  return std::optional(std::string(text->data(), text->size()));
}

}  // namespace

ResponseLanes::ResponseLanes(Service& service, WebSocket& socket, Wake& wake, Scope& scope,
                             asio::any_io_executor executor, std::string tenant)
    : service_(service),
      socket_(socket),
      wake_(wake),
      scope_(scope),
      outputs_(std::make_shared<OutputQueue>(std::move(executor), wake)),
      tenant_(std::move(tenant)),
      name_(random_id("ws-")),
      kept_(std::make_shared<ResponseStore>(kConnectionStoreBytes)) {}

bool ResponseLanes::idle() const {
  if (waiting_ > 0) return false;
  return std::none_of(lanes_.begin(), lanes_.end(),
                      [](const auto& entry) { return entry.second->busy(); });
}

template <class F>
ResponseLanes::Lane* ResponseLanes::find_running(F matches) {
  for (auto& [key, lane] : lanes_) {
    if (lane->call && matches(*lane)) return lane.get();
  }
  return nullptr;
}

void ResponseLanes::create(json::object event, size_t bytes) {
  const auto named = lane_name(event);
  if (!named) return send_error(named.error(), std::nullopt);
  const std::optional<std::string>& name = *named;
  const std::string key = name ? "=" + *name : std::string();
  if (!lanes_.contains(key) && lanes_.size() >= kLanesMax) drop_idle_lane();
  if (waiting_ >= kWaitingMax || (!lanes_.contains(key) && lanes_.size() >= kLanesMax)) {
    return send_error({.status = 429,
                       .type = "rate_limit_error",
                       .message = "too many responses wait on this connection",
                       .code = "rate_limit_exceeded"},
                      name);
  }
  if (service_.drain.stopped()) return send_error(shutting_down(), name);
  for (const char* own : {"type", "stream_id", "stream", "stream_options"}) event.erase(own);
  auto& lane = lanes_[key];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
    lane->name = name;
    lane->session = name_ + key;
  }
  last_key_ = key;
  lane->waiting.emplace_back(std::move(event), bytes);
  ++waiting_;
  waiting_bytes_ += bytes;
}

void ResponseLanes::prefetch(const std::optional<json::object>& event) {
  std::string key = last_key_;
  if (event) {
    const auto named = lane_name(*event);
    if (!named) return send_error(named.error(), std::nullopt);
    key = *named ? "=" + **named : std::string();
  }
  const auto now = std::chrono::steady_clock::now();
  const auto lane = lanes_.find(key);
  if (lane == lanes_.end() || lane->second->busy() || model_ == nullptr) return;
  if (now - prefetched_ < kPrefetchEvery) return;
  prefetched_ = now;
  model_->backend->prefetch(lane->second->session);
}

// A lane that does nothing makes room for a new one, and its soft lease ends.
void ResponseLanes::drop_idle_lane() {
  const auto idle = std::find_if(lanes_.begin(), lanes_.end(), [](const auto& entry) {
    return !entry.second->busy() && entry.second->waiting.empty();
  });
  if (idle == lanes_.end()) return;
  if (model_ != nullptr) model_->backend->end_session(idle->second->session);
  lanes_.erase(idle);
}

void ResponseLanes::start_waiting() {
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

// A busy lane is never dropped, so it outlives the wait.
Task<> ResponseLanes::prepare(Lane& lane, json::object body) {
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
  forget_previous(body);
  send_error(call.error(), lane.name);
}

void ResponseLanes::begin(Lane& lane, ResponseCall call, json::object body) {
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

void ResponseLanes::take_outputs() {
  for (auto& [index, output] : outputs_->take()) {
    Lane* lane = find_running([&](const Lane& one) { return one.index == index; });
    if (lane == nullptr) continue;
    ResponseEvents& response = *lane->call->events;
    ResponseEvents::Events events;
    if (output.finish == scheduler::FinishReason::kCancelled && !lane->steers.empty()) {
      response.mark_steered();
      output.finish = scheduler::FinishReason::kLength;
    }
    lane->watch->see(output);
    if (auto ended = check_finish(output); !ended) {
      response.fail(ended.error(), events);
      service_.metrics.observe_failed("error");
    } else {
      response.take(output, events);
    }
    send_all(std::move(events), *lane);
    if (output.done) {
      if (response.completed()) lane->watch->end(output);
      end_response(*lane);
    }
  }
}

void ResponseLanes::end_response(Lane& lane) {
  const std::string id = lane.call->id;
  const bool completed = lane.call->events->completed();
  if (completed) {
    keep_response(*lane.call, context(lane));
  } else {
    forget_previous(lane.body);
  }
  remember_ended(id);
  std::vector<Steer> steers = std::exchange(lane.steers, {});
  lane.call.reset();
  lane.watch.reset();
  if (steers.empty()) return;
  if (completed) return successor(lane, std::move(steers), id);
  for (const Steer& steer : steers) {
    send(steer_failed_event(steer, id, "successor_creation_failed", "the response failed"),
         lane.name);
  }
}

void ResponseLanes::remember_ended(const std::string& id) {
  ended_responses_.insert(id);
  ended_order_.push_back(id);
  if (ended_order_.size() <= kEndedMax) return;
  ended_responses_.erase(ended_order_.front());
  ended_order_.pop_front();
}

void ResponseLanes::forget_previous(const json::object& body) {
  const json::value* previous = body.if_contains("previous_response_id");
  if (previous == nullptr || !previous->is_string()) return;
  const json::string& id = previous->get_string();
  kept_->erase(std::string(id.data(), id.size()));
}

// Goes on from a response with the input that was queued for it, before what waits in the lane.
void ResponseLanes::successor(Lane& lane, std::vector<Steer> steers, const std::string& previous) {
  json::object body = std::exchange(lane.body, {});
  lane.waiting.emplace_front(successor_body(std::move(body), std::move(steers), previous), 0);
  ++waiting_;
  wake_.notify();
}

void ResponseLanes::steer(const json::object& event) {
  const json::value* target = event.if_contains("previous_response_id");
  const json::value* input = event.if_contains("input");
  if (target == nullptr || !target->is_string() || input == nullptr) {
    return send_error(bad_field("previous_response_id",
                                "response.steer needs 'previous_response_id' and 'input'"),
                      std::nullopt);
  }
  const std::string id(target->get_string().c_str());
  Steer steer{.id = {}, .input = *input};
  Lane* lane = find_running([&](const Lane& one) { return one.call->id == id; });
  if (lane == nullptr) {
    const bool ended = ended_responses_.contains(id);
    return send(
        steer_failed_event(steer, id, ended ? "response_already_completed" : "response_not_found",
                           ended ? "the response has ended: continue it with response.create"
                                 : "no such response on this connection"),
        std::nullopt);
  }
  if (auto refused = refuse_steering(*input)) {
    return send(steer_failed_event(steer, id, "invalid_input", std::move(*refused)), lane->name);
  }
  if (lane->steers.size() >= kSteersMax) {
    return send(steer_failed_event(steer, id, "too_many_pending_steers",
                                   "too much steering input waits for this response"),
                lane->name);
  }
  steer.id = random_id("steer_");
  send(steer_accepted_event(steer, id, lane->call->events->take_sequence()), lane->name);
  lane->steers.push_back(std::move(steer));
  model_->backend->cancel(lane->request);
}

void ResponseLanes::send(json::object event, const std::optional<std::string>& lane) {
  if (lane) event["stream_id"] = *lane;
  socket_.send(to_json(event));
}

void ResponseLanes::send_all(ResponseEvents::Events events, const Lane& lane) {
  for (json::object& event : events) send(std::move(event), lane.name);
}

void ResponseLanes::send_error(const ApiError& error, const std::optional<std::string>& lane) {
  send(error_event(error), lane);
}

void ResponseLanes::fail_running(const ApiError& error) {
  for (auto& [key, lane] : lanes_) {
    if (!lane->call) continue;
    ResponseEvents::Events events;
    lane->call->events->fail(error, events);
    send_all(std::move(events), *lane);
  }
}

void ResponseLanes::leave() {
  outputs_->detach();
  for (auto& [key, lane] : lanes_) {
    lane->waiting.clear();
    if (model_ == nullptr) continue;
    if (lane->call) {
      model_->backend->cancel(lane->request);
      service_.metrics.observe_failed("abort");
      lane->call.reset();
      lane->watch.reset();
    }
    model_->backend->end_session(lane->session);
  }
  waiting_ = 0;
  waiting_bytes_ = 0;
}

}  // namespace spillway::server
