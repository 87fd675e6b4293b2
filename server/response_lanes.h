// The lanes of one Responses WebSocket: requests with one stream_id run in the order they came,
// different lanes side by side; no stream_id is a lane too. Each lane holds a soft lease on its
// pages until leave().
//
// Steering ends the active response at what was sent of it (incomplete, reason "steered") and goes
// on with the queued input in a successor.
//
// Owner: the socket's session, which calls take_outputs() and start_waiting() whenever `wake` was
// notified. Network thread. Bounds: what waits is counted; past kWaitingMax a request is refused
// with an event, and waiting_bytes() tells the session when to read no more.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/scope.h"
#include "server/api/responses.h"
#include "server/api/steering.h"
#include "server/job_watch.h"
#include "server/output_queue.h"
#include "server/service.h"
#include "server/websocket.h"

namespace spillway::server {

class ResponseLanes {
 public:
  static constexpr size_t kLanesMax = 64;
  static constexpr size_t kWaitingMax = 256;  // response.create events not yet begun, all lanes
  static constexpr size_t kSteersMax = 16;    // of one response
  static constexpr std::chrono::milliseconds kPrefetchEvery{250};
  static constexpr size_t kNameMax = 128;  // of a stream_id
  static constexpr size_t kConnectionStoreBytes = 32 << 20;

  // All must outlive this, and `scope` must have been joined before it dies.
  ResponseLanes(Service& service, WebSocket& socket, Wake& wake, Scope& scope,
                asio::any_io_executor executor, std::string tenant);

  // A response.create of `bytes` bytes, to run when its lane is free; and a response.steer. What
  // is wrong with them is sent as an event.
  void create(boost::json::object event, size_t bytes);
  void steer(const boost::json::object& event);
  // The next request is near: pages of its lane may come up. `event` names the lane; without it the
  // one that was used last is meant. At most once in kPrefetchEvery; answered by nothing.
  void prefetch(const std::optional<boost::json::object>& event);

  // Turns what the engine has sent into events.
  void take_outputs();
  // Begins what waits in lanes that are free.
  void start_waiting();

  bool idle() const;
  size_t waiting_bytes() const { return waiting_bytes_; }
  // The engine's outputs were not taken for too long: the client does not read.
  bool overflowed() { return outputs_->overflowed(); }
  // Tells every running response's lane that it cannot go on.
  void fail_running(const ApiError& error);
  // The socket has ended: cancels what runs, forgets what waits, ends the soft leases.
  void leave();

  void send_error(const ApiError& error, const std::optional<std::string>& lane);

 private:
  struct Lane {
    std::optional<std::string> name;                             // stream_id
    std::string session;                                         // of its soft lease
    std::deque<std::pair<boost::json::object, size_t>> waiting;  // bodies, bytes of each
    bool preparing = false;

    // The response that runs.
    std::optional<ResponseCall> call;
    boost::json::object body;  // its response.create
    uint32_t index = 0;        // in the output queue
    scheduler::RequestId request{};
    std::vector<Steer> steers;
    std::optional<JobWatch> watch;

    bool busy() const { return preparing || call.has_value(); }
  };
  using Lanes = std::map<std::string, std::unique_ptr<Lane>>;

  template <class F>
  Lane* find_running(F matches);
  void drop_idle_lane();
  Task<> prepare(Lane& lane, boost::json::object body);
  void begin(Lane& lane, ResponseCall call, boost::json::object body);
  void end_response(Lane& lane);
  void successor(Lane& lane, std::vector<Steer> steers, const std::string& previous);
  void remember_ended(const std::string& id);
  void forget_previous(const boost::json::object& body);
  void send(boost::json::object event, const std::optional<std::string>& lane);
  void send_all(ResponseEvents::Events events, const Lane& lane);
  ResponseContext context(const Lane& lane) const {
    return {tenant_, lane.session, service_.responses, kept_};
  }

  Service& service_;
  WebSocket& socket_;
  Wake& wake_;
  Scope& scope_;
  const std::shared_ptr<OutputQueue> outputs_;
  const std::string tenant_;
  const std::string name_;
  const std::shared_ptr<ResponseStore> kept_;  // store: false
  Lanes lanes_;                                // "" is no stream_id, else "=" + it
  std::set<std::string> ended_responses_;
  std::deque<std::string> ended_order_;
  std::shared_ptr<const ServedModel> model_;
  size_t waiting_ = 0;
  size_t waiting_bytes_ = 0;
  uint32_t next_index_ = 0;
  std::string last_key_;  // of the lane that was used last
  std::chrono::steady_clock::time_point prefetched_{};
};

}  // namespace spillway::server
