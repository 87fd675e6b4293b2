// Any bytes as bodies of /v1/responses, over HTTP and as events of its WebSocket (cases A5, A6,
// A9): they may be refused, with a message; what is accepted gives events that count up, end once,
// and are JSON, and a response that the next request can go on from.
//
// The input: a byte of flags, then bodies, each up to a 0xFF (which is in no UTF-8 text). Each may
// continue the last completed one.
#include <algorithm>
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/check.h"
#include "server/api/json_reader.h"
#include "server/api/responses.h"
#include "server/api/steering.h"
#include "server/api/utf8.h"
#include "tests/server/fake_model.h"

namespace spillway::server {
namespace {

using scheduler::FinishReason;
using scheduler::Output;

constexpr size_t kBodiesMax = 6;
constexpr size_t kConnectionStoreBytes = 4096;  // so small that responses go

struct Flags {
  explicit Flags(uint8_t byte) : bits(byte) {}
  bool socket() const { return (bits & 1) != 0; }     // else over HTTP
  bool continues() const { return (bits & 2) != 0; }  // previous_response_id names the last one
  bool fails() const { return (bits & 4) != 0; }      // the engine gives up half way
  bool cut() const { return (bits & 8) != 0; }        // the answer ends by its length
  uint8_t bits;
};

void check_refusal(const ApiError& error) {
  CHECK(error.status >= 400 && error.status < 500);
  CHECK(!error.message.empty());
  CHECK(is_utf8(error.message));
  CHECK(read_json_object(json::serialize(error_event(error))).has_value());
}

// What an engine would say to the request: two tokens, then the end.
std::vector<Output> outputs_of(const scheduler::Request& request, const Flags& flags) {
  std::vector<Output> outputs;
  for (uint32_t i = 0; i < std::min(request.stop.max_tokens, 2u); ++i) {
    Output output;
    output.text = i == 0 ? "a\"\\\n" : "\xC3\xA9";
    scheduler::OutputToken token{
        .token = 'a', .logprob = -std::numeric_limits<float>::infinity(), .top = {}};
    for (uint32_t at = 0; at < request.logprobs.value_or(0); ++at) token.top.push_back({255, -1});
    output.tokens.push_back(std::move(token));
    output.usage.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    outputs.push_back(std::move(output));
  }
  Output last;
  const bool length = flags.cut() || request.stop.max_tokens == 0;
  last.finish = length ? FinishReason::kLength : FinishReason::kStop;
  last.done = true;
  last.usage.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  last.usage.completion_tokens = static_cast<uint32_t>(outputs.size());
  outputs.push_back(std::move(last));
  return outputs;
}

void check_request(const scheduler::Request& request) {
  CHECK(!request.prompt.empty());
  for (const model::TokenId token : request.prompt) CHECK(token >= 0 && token < 259);
  CHECK(request.choices == 1);
  CHECK(request.logprobs.value_or(0) <= 20);
}

// The events of one response, as a socket sends them.
void check_events(const ResponseCall& call, const Flags& flags) {
  ResponseEvents::Events events;
  call.events->open(events);
  for (const Output& output : outputs_of(call.request, flags)) {
    if (flags.fails() && output.done) {
      call.events->fail({.status = 500, .message = "the engine failed"}, events);
    }
    call.events->take(output, events);
  }
  CHECK(call.events->ended());
  size_t ends = 0;
  uint64_t sequence = 0;
  for (const json::object& event : events) {
    CHECK(event.at("sequence_number").to_number<uint64_t>() == sequence++);
    const json::string& type = event.at("type").get_string();
    ends +=
        type == "response.completed" || type == "response.incomplete" || type == "response.failed";
    CHECK(read_json_object(json::serialize(event)).has_value());
  }
  CHECK(ends == 1);
}

// The whole exchange over HTTP, as wire text.
void check_job(Job job, const Flags& flags) {
  CHECK(job.requests.size() == 1);
  check_request(job.requests[0]);
  std::string wire;
  job.reply->begin(wire);
  for (const Output& output : outputs_of(job.requests[0], flags)) {
    CHECK(job.reply->take(0, output, wire).has_value());
  }
  job.reply->finish(wire);
  CHECK(is_utf8(wire));
  if (job.stream) {
    CHECK(wire.starts_with("event: response.created\n"));
    CHECK(wire.ends_with("\n\ndata: [DONE]\n\n"));
  } else {
    CHECK(read_json_object(wire).has_value());
  }
}

class Exchange {
 public:
  explicit Exchange(Flags flags) : flags_(flags) {
    context_.tenant = "tenant";
    context_.shared = std::make_shared<ResponseStore>(1 << 20);
    if (flags_.socket()) {
      context_.connection = std::make_shared<ResponseStore>(kConnectionStoreBytes);
    }
  }

  void take(std::string_view text) {
    auto body = read_json_object(text);
    if (!body) return check_refusal(body.error());
    if (flags_.continues() && !last_.empty()) (*body)["previous_response_id"] = last_;
    if (!flags_.socket()) return take_over_http(*body);
    const json::value* type = body->if_contains("type");
    if (type != nullptr && *type == "response.steer") return steer(*body);
    create(std::move(*body));
  }

 private:
  static const std::shared_ptr<ServedModel>& model() {
    static const auto made = make_fake_model(std::make_shared<FakeBackend>());
    return made;
  }

  void take_over_http(const json::object& body) {
    auto job = prepare_response_job(model(), json::serialize(body), context_);
    if (!job) return check_refusal(job.error());
    const std::string id = job->id;
    check_job(std::move(*job), flags_);
    if (context_.shared->find(id, context_.tenant) != nullptr) last_ = id;
  }

  void create(json::object body) {
    auto call = prepare_response(model(), body, context_);
    if (!call) return check_refusal(call.error());
    check_request(call->request);
    check_events(*call, flags_);
    if (!call->events->completed()) return;
    keep_response(*call, context_);
    last_ = call->id;
    created_ = std::move(body);
  }

  // New input for the last response: it goes on in a successor.
  void steer(const json::object& event) {
    const json::value* input = event.if_contains("input");
    if (input == nullptr || last_.empty()) return;
    if (const auto why = refuse_steering(*input)) {
      CHECK(!why->empty());
      return;
    }
    create(successor_body(created_, {{"steer_1", *input}}, last_));
  }

  const Flags flags_;
  ResponseContext context_;
  std::string last_;
  json::object created_;
};

}  // namespace
}  // namespace spillway::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spillway::server;
  if (size == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  Exchange exchange{Flags(data[0])};
  for (size_t i = 0; i < kBodiesMax && !rest.empty(); ++i) {
    const size_t end = std::min(rest.find('\xFF'), rest.size());
    exchange.take(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return 0;
}
