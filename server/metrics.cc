#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace spillway::server {
namespace {

using prometheus::ClientMetric;
using prometheus::Labels;
using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const prometheus::Histogram::BucketBoundaries kTokens = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

void set_value(ClientMetric& metric, MetricType type, double value) {
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

// Values that the engine counts itself, read at scrape time.
class Scrape {
 public:
  explicit Scrape(std::string_view model) : model_(model) {}

  void add(const char* name, const char* help, MetricType type, double value,
           const Labels& labels = {}) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    }
    ClientMetric metric;
    metric.label.push_back({.name = "model_name", .value = model_});
    for (const auto& [key, text] : labels) metric.label.push_back({.name = key, .value = text});
    set_value(metric, type, value);
    families_.back().metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  std::string model_;
  std::vector<MetricFamily> families_;
};

void add_pools(Scrape& out, const scheduler::EngineStats& stats, uint32_t page_tokens) {
  // Sealed pages that nobody pins can be had at once: as in vLLM they are not in use.
  double used = 0, capacity = 0;
  for (const auto& pool : stats.pools) {
    const uint32_t held = pool.writable + pool.filling + pool.orphaned + pool.pinned;
    capacity += double(pool.capacity) * double(pool.page_bytes);
    used += double(held) * double(pool.page_bytes);
  }
  out.add("vllm:kv_cache_usage_perc", "Share of the KV memory that requests hold, 0 to 1.",
          MetricType::Gauge, capacity > 0 ? used / capacity : 0);
  const uint32_t pages = stats.pools.empty() ? 0 : stats.pools.front().capacity;
  out.add("vllm:cache_config_info", "Page size in tokens and pages of the first layer group.",
          MetricType::Gauge, 1,
          {{"block_size", std::to_string(page_tokens)}, {"num_gpu_blocks", std::to_string(pages)}});
  out.add("spillway:kv_pool_bytes", "Bytes of all page pools.", MetricType::Gauge, capacity,
          {{"tier", "device"}});
  const auto states = [&](size_t group) {
    const auto& pool = stats.pools[group];
    return std::vector<std::pair<const char*, uint32_t>>{{"free", pool.free},
                                                         {"writable", pool.writable},
                                                         {"sealed", pool.sealed},
                                                         {"filling", pool.filling},
                                                         {"orphaned", pool.orphaned}};
  };
  for (size_t group = 0; group < stats.pools.size(); ++group) {
    for (const auto& [state, count] : states(group)) {
      out.add("spillway:kv_pages", "Pages by state; the states add up to the capacity.",
              MetricType::Gauge, count,
              {{"tier", "device"}, {"group", std::to_string(group)}, {"state", state}});
    }
  }
  for (size_t group = 0; group < stats.pools.size(); ++group) {
    out.add("spillway:kv_pages_capacity", "Pages of the pool.", MetricType::Gauge,
            stats.pools[group].capacity, {{"tier", "device"}, {"group", std::to_string(group)}});
  }
  for (size_t group = 0; group < stats.pools.size(); ++group) {
    out.add("spillway:kv_pages_pinned", "Sealed pages under a lease.", MetricType::Gauge,
            stats.pools[group].pinned, {{"tier", "device"}, {"group", std::to_string(group)}});
  }
}

void add_tiers(Scrape& out, const scheduler::EngineStats& stats) {
  if (!stats.has_tiers) return;
  const auto gauge = MetricType::Gauge;
  const auto counter = MetricType::Counter;
  struct Value {
    const char* name;
    const char* help;
    MetricType type;
    double (*of)(const cache::TierStats&);
  };
  using Tier = const cache::TierStats&;
  static const Value kValues[] = {
      {"spillway:tier_capacity_bytes", "Bytes for pages in a tier below the device.", gauge,
       [](Tier t) { return double(t.capacity_bytes); }},
      {"spillway:tier_used_bytes", "Of these, in use.", gauge,
       [](Tier t) { return double(t.used_bytes); }},
      {"spillway:tier_pages", "Pages that the tier holds.", gauge,
       [](Tier t) { return double(t.pages); }},
      {"spillway:tier_hits_total", "Pages that requests took from the tier.", counter,
       [](Tier t) { return double(t.hits); }},
      {"spillway:tier_read_pages_total", "Pages moved up.", counter,
       [](Tier t) { return double(t.reads); }},
      {"spillway:tier_written_pages_total", "Pages moved down.", counter,
       [](Tier t) { return double(t.writes); }},
      {"spillway:tier_read_bytes_total", "Bytes moved up.", counter,
       [](Tier t) { return double(t.read_bytes); }},
      {"spillway:tier_written_bytes_total", "Bytes moved down.", counter,
       [](Tier t) { return double(t.written_bytes); }},
      {"spillway:tier_evictions_total", "Pages evicted from the tier.", counter,
       [](Tier t) { return double(t.evictions); }},
      {"spillway:tier_errors_total", "Operations that failed; each became a recompute.", counter,
       [](Tier t) { return double(t.errors); }},
      {"spillway:tier_corrupt_total", "Pages that did not verify; none was served.", counter,
       [](Tier t) { return double(t.corrupt); }},
      {"spillway:tier_skipped_total", "Pages not written: policy, no room, or set aside.", counter,
       [](Tier t) { return double(t.skipped); }},
      {"spillway:tier_bytes_per_second", "Towards the device, as measured; 0: not yet.", gauge,
       [](Tier t) { return t.measured ? t.bytes_per_s : 0.0; }},
      {"spillway:tier_set_aside", "1 while the tier is set aside after failures.", gauge,
       [](Tier t) { return t.set_aside ? 1.0 : 0.0; }},
  };
  for (const Value& value : kValues) {
    for (const bool host : {true, false}) {
      const cache::TierStats& tier = host ? stats.tiers.host : stats.tiers.nvme;
      if (tier.capacity_bytes == 0) continue;
      out.add(value.name, value.help, value.type, value.of(tier),
              {{"tier", host ? "host" : "nvme"}});
    }
  }
  if (stats.tiers.nvme.capacity_bytes > 0) {
    out.add("spillway:io_info", "How the disk is read and written.", gauge, 1,
            {{"backend", stats.io_uring ? "io_uring" : "threads"},
             {"mode", stats.tiers.store.direct ? "direct" : "buffered"}});
  }
  const cache::CodecStats& codec = stats.tiers.codec;
  out.add("spillway:codec_encoded_pages_total", "Pages written smaller than they are.", counter,
          double(codec.encoded));
  out.add("spillway:codec_bytes_before_total", "Their bytes as they are.", counter,
          double(codec.bytes_before));
  out.add("spillway:codec_bytes_after_total", "Their bytes on disk.", counter,
          double(codec.bytes_after));
  out.add("spillway:codec_kept_pages_total", "Pages written as they are in spite of a codec.",
          counter, double(codec.kept));
  out.add("spillway:codec_decoded_pages_total", "Pages read and decoded.", counter,
          double(codec.decoded));
  out.add("spillway:codec_failed_pages_total", "Pages that did not decode; none was served.",
          counter, double(codec.failed));
  out.add("spillway:store_read_only", "1 while the disk takes no writes; reads go on.", gauge,
          stats.tiers.store.read_only ? 1 : 0);
  out.add("spillway:tier_other_pages", "Pages of other models or settings; they go first.", gauge,
          double(stats.tiers.other_pages));
  out.add("spillway:tier_loads", "Requests whose pages are coming up.", gauge, stats.tiers.loads);
  out.add("spillway:tier_paths_waiting", "Paths that wait to be written.", gauge,
          double(stats.tiers.paths_waiting));
  out.add("spillway:tier_paths_dropped_total", "Paths not written: too many waited.", counter,
          double(stats.tiers.paths_dropped));
  out.add("spillway:io_in_flight", "Disk operations in flight.", gauge, stats.ring.in_flight);
  out.add("spillway:io_queued", "Disk operations that wait for an entry.", gauge,
          stats.ring.queued);
  out.add("spillway:io_errors_total", "Disk operations that the system failed.", counter,
          double(stats.ring.errors));
  out.add("spillway:io_abandoned_total", "Disk operations that nobody waited for any more.",
          counter, double(stats.ring.abandoned));
}

void add_engine(Scrape& out, const scheduler::EngineStats& stats) {
  const auto gauge = MetricType::Gauge;
  const auto counter = MetricType::Counter;
  out.add("vllm:num_requests_running", "Sequences in the running batch.", gauge, stats.running);
  out.add("vllm:num_requests_waiting", "Requests that wait.", gauge, stats.waiting);
  out.add("vllm:num_preemptions_total", "Preemptions.", counter, double(stats.preemptions));
  out.add("vllm:prompt_tokens_total", "Prompt tokens processed.", counter,
          double(stats.prompt_tokens));
  out.add("vllm:prompt_tokens_cached_total", "Prompt tokens whose KV came from the cache.", counter,
          double(stats.cached_tokens));
  out.add("vllm:generation_tokens_total", "Tokens generated.", counter,
          double(stats.generated_tokens));
  out.add("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix tree.", counter,
          double(stats.prefix_queries));
  out.add("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix tree.", counter,
          double(stats.prefix_hits));
  out.add("spillway:steps_total", "Steps of the engine.", counter, double(stats.steps));
  out.add("spillway:evicted_pages_total", "Pages evicted.", counter, double(stats.evicted_pages));
  out.add("spillway:tree_nodes", "Nodes of the prefix tree.", gauge, double(stats.tree_nodes));
  out.add("spillway:tree_namespaces", "Namespaces of the prefix tree.", gauge,
          double(stats.tree_namespaces));
  out.add("spillway:sessions", "Open sessions with a soft lease.", gauge, stats.sessions);
}

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
    Scrape scrape(model_name);
    add_engine(scrape, *stats);
    add_pools(scrape, *stats, page_tokens);
    add_tiers(scrape, *stats);
    out = impl_->serializer.Serialize(scrape.take());
  }
  auto counted = impl_->registry.Collect();
  if (!model_name.empty()) add_model_name(counted, model_name);
  return out + impl_->serializer.Serialize(counted);
}

}  // namespace spillway::server
