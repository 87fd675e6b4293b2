#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "server/engine_metrics.h"

namespace spillway::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const prometheus::Histogram::BucketBoundaries kTokens = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

// What counts under vLLM's names has its label too: which model it is of.
void add_model_name(std::vector<MetricFamily>& families, std::string_view model) {
  for (MetricFamily& family : families) {
    if (!family.name.starts_with("vllm:")) continue;
    for (ClientMetric& metric : family.metric) {
      metric.label.insert(metric.label.begin(),
                          {.name = "model_name", .value = std::string(model)});
    }
  }
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::TextSerializer serializer;

  prometheus::Histogram& histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  prometheus::Histogram& first_token = histogram(
      "vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", kSeconds);
  prometheus::Histogram& token_gap = histogram("vllm:inter_token_latency_seconds",
                                               "Between two outputs of one request.", kSeconds);
  prometheus::Histogram& total = histogram("vllm:e2e_request_latency_seconds",
                                           "From a request's arrival to its end.", kSeconds);
  prometheus::Histogram& queue =
      histogram("vllm:request_queue_time_seconds", "Waiting to run.", kSeconds);
  prometheus::Histogram& prefill =
      histogram("vllm:request_prefill_time_seconds", "Computing the prompt.", kSeconds);
  prometheus::Histogram& decode =
      histogram("vllm:request_decode_time_seconds", "Generating tokens.", kSeconds);
  prometheus::Histogram& prompt =
      histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", kTokens);
  prometheus::Histogram& generated =
      histogram("vllm:request_generation_tokens", "Tokens generated for a request.", kTokens);
  prometheus::Family<prometheus::Counter>& success = prometheus::BuildCounter()
                                                         .Name("vllm:request_success_total")
                                                         .Help("Requests by how they ended.")
                                                         .Register(registry);
  prometheus::Family<prometheus::Counter>& http = prometheus::BuildCounter()
                                                      .Name("spillway:http_requests_total")
                                                      .Help("HTTP requests by route and status.")
                                                      .Register(registry);
  prometheus::Gauge& connections = prometheus::BuildGauge()
                                       .Name("spillway:connections")
                                       .Help("Open client connections.")
                                       .Register(registry)
                                       .Add({});
  prometheus::Gauge& websockets = prometheus::BuildGauge()
                                      .Name("spillway:websockets")
                                      .Help("Open WebSockets; each is a connection too.")
                                      .Register(registry)
                                      .Add({});
  prometheus::Gauge& open_requests = prometheus::BuildGauge()
                                         .Name("spillway:open_requests")
                                         .Help("Answers that clients wait for or read.")
                                         .Register(registry)
                                         .Add({});
  prometheus::Counter& refused = prometheus::BuildCounter()
                                     .Name("spillway:connections_refused_total")
                                     .Help("Connections not accepted at once: bound reached.")
                                     .Register(registry)
                                     .Add({});
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::observe_request(const scheduler::Usage& usage, const RequestTimes& times,
                              std::string_view reason) {
  impl_->first_token.Observe(times.to_first_token);
  impl_->total.Observe(times.total);
  impl_->queue.Observe(usage.queue_seconds);
  impl_->prefill.Observe(usage.prefill_seconds);
  impl_->decode.Observe(usage.decode_seconds);
  impl_->prompt.Observe(usage.prompt_tokens);
  impl_->generated.Observe(usage.completion_tokens);
  observe_failed(reason);
}

void Metrics::observe_failed(std::string_view reason) {
  impl_->success.Add({{"finished_reason", std::string(reason)}}).Increment();
}

void Metrics::observe_token_gap(double seconds) { impl_->token_gap.Observe(seconds); }

void Metrics::count_http(std::string_view path, int status) {
  impl_->http.Add({{"path", std::string(path)}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::connection_opened() { impl_->connections.Increment(); }
void Metrics::connection_closed() { impl_->connections.Decrement(); }
void Metrics::connection_refused() { impl_->refused.Increment(); }
void Metrics::websocket_opened() { impl_->websockets.Increment(); }
void Metrics::websocket_closed() { impl_->websockets.Decrement(); }
void Metrics::work_began() { impl_->open_requests.Increment(); }
void Metrics::work_ended() { impl_->open_requests.Decrement(); }

std::string Metrics::text(const scheduler::EngineStats* stats, std::string_view model_name,
                          uint32_t page_tokens) {
  std::string out;
  if (stats != nullptr) {
    out = impl_->serializer.Serialize(engine_metrics(*stats, model_name, page_tokens));
  }
  auto counted = impl_->registry.Collect();
  if (!model_name.empty()) add_model_name(counted, model_name);
  return out + impl_->serializer.Serialize(counted);
}

}  // namespace spillway::server
