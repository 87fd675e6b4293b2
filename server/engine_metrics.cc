#include "server/engine_metrics.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace spillway::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<const char*, std::string>>;

constexpr auto kGauge = MetricType::Gauge;
constexpr auto kCounter = MetricType::Counter;

// Values of one name come one after the other and make one family.
class Scrape {
 public:
  explicit Scrape(std::string_view model) : model_(model) {}

  void add(const char* name, const char* help, MetricType type, double value,
           const Labels& labels = {}) {
    ClientMetric& metric = added(name, help, type, labels);
    (type == kCounter ? metric.counter.value : metric.gauge.value) = value;
  }
  void add(const char* name, const char* help, const LatencyHistogram& times,
           const Labels& labels = {}) {
    auto& histogram = added(name, help, MetricType::Histogram, labels).histogram;
    uint64_t below = 0;
    for (size_t i = 0; i <= LatencyHistogram::kBoundsS.size(); ++i) {
      const bool last = i == LatencyHistogram::kBoundsS.size();
      below += times.in_bucket(i);
      histogram.bucket.push_back({.cumulative_count = below,
                                  .upper_bound = last ? std::numeric_limits<double>::infinity()
                                                      : LatencyHistogram::kBoundsS[i]});
    }
    histogram.sample_count = times.count();
    histogram.sample_sum = times.sum_s();
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  ClientMetric& added(const char* name, const char* help, MetricType type, const Labels& labels) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    }
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label.push_back({.name = "model_name", .value = model_});
    for (const auto& [key, text] : labels) metric.label.push_back({.name = key, .value = text});
    return metric;
  }

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
  out.add("vllm:kv_cache_usage_perc", "Share of the KV memory that requests hold, 0 to 1.", kGauge,
          capacity > 0 ? used / capacity : 0);
  const uint32_t pages = stats.pools.empty() ? 0 : stats.pools.front().capacity;
  out.add("vllm:cache_config_info", "Page size in tokens and pages of the first layer group.",
          kGauge, 1,
          {{"block_size", std::to_string(page_tokens)}, {"num_gpu_blocks", std::to_string(pages)}});
  out.add("spillway:kv_pool_bytes", "Bytes of all page pools.", kGauge, capacity,
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
      out.add("spillway:kv_pages", "Pages by state; the states add up to the capacity.", kGauge,
              count, {{"tier", "device"}, {"group", std::to_string(group)}, {"state", state}});
    }
  }
  for (size_t group = 0; group < stats.pools.size(); ++group) {
    out.add("spillway:kv_pages_capacity", "Pages of the pool.", kGauge, stats.pools[group].capacity,
            {{"tier", "device"}, {"group", std::to_string(group)}});
  }
  for (size_t group = 0; group < stats.pools.size(); ++group) {
    out.add("spillway:kv_pages_pinned", "Sealed pages under a lease.", kGauge,
            stats.pools[group].pinned, {{"tier", "device"}, {"group", std::to_string(group)}});
  }
}

using Tier = const cache::TierStats&;

struct TierValue {
  const char* name;
  const char* help;
  MetricType type;
  double (*of)(Tier);
};

constexpr TierValue kTierValues[] = {
    {"spillway:tier_capacity_bytes", "Bytes for pages in a tier below the device.", kGauge,
     [](Tier t) { return double(t.capacity_bytes); }},
    {"spillway:tier_used_bytes", "Of these, in use.", kGauge,
     [](Tier t) { return double(t.used_bytes); }},
    {"spillway:tier_pages", "Pages that the tier holds.", kGauge,
     [](Tier t) { return double(t.pages); }},
    {"spillway:tier_hits_total", "Pages that requests took from the tier.", kCounter,
     [](Tier t) { return double(t.hits); }},
    {"spillway:tier_read_pages_total", "Pages moved up.", kCounter,
     [](Tier t) { return double(t.reads); }},
    {"spillway:tier_written_pages_total", "Pages moved down.", kCounter,
     [](Tier t) { return double(t.writes); }},
    {"spillway:tier_read_bytes_total", "Bytes moved up.", kCounter,
     [](Tier t) { return double(t.read_bytes); }},
    {"spillway:tier_written_bytes_total", "Bytes moved down.", kCounter,
     [](Tier t) { return double(t.written_bytes); }},
    {"spillway:tier_evictions_total", "Pages evicted from the tier.", kCounter,
     [](Tier t) { return double(t.evictions); }},
    {"spillway:tier_errors_total", "Operations that failed; no request failed with them.", kCounter,
     [](Tier t) { return double(t.errors); }},
    {"spillway:tier_corrupt_total", "Pages that did not verify; none was served.", kCounter,
     [](Tier t) { return double(t.corrupt); }},
    {"spillway:tier_skipped_total", "Pages not written: policy, no room, or set aside.", kCounter,
     [](Tier t) { return double(t.skipped); }},
    {"spillway:tier_bytes_per_second", "Towards the device, as measured; 0: not yet.", kGauge,
     [](Tier t) { return t.measured ? t.bytes_per_s : 0.0; }},
    {"spillway:tier_set_aside", "1 while reads of the tier are set aside after failures.", kGauge,
     [](Tier t) { return t.set_aside ? 1.0 : 0.0; }},
    {"spillway:tier_writes_set_aside", "1 while writes to it are set aside after failures.", kGauge,
     [](Tier t) { return t.writes_set_aside ? 1.0 : 0.0; }},
    {"spillway:tier_set_aside_total", "Times that reads or writes of it were set aside.", kCounter,
     [](Tier t) { return double(t.times_set_aside); }},
};

// Calls `add` with the name of each lower tier that there is, and its figures.
template <class F>
void for_each_tier(const scheduler::EngineStats& stats, F add) {
  if (stats.tiers.host.capacity_bytes > 0) add("host", stats.tiers.host);
  if (stats.tiers.nvme.capacity_bytes > 0) add("nvme", stats.tiers.nvme);
}

void add_tiers(Scrape& out, const scheduler::EngineStats& stats) {
  for (const TierValue& value : kTierValues) {
    for_each_tier(stats, [&](const char* name, Tier tier) {
      out.add(value.name, value.help, value.type, value.of(tier), {{"tier", name}});
    });
  }
  for_each_tier(stats, [&](const char* name, Tier tier) {
    out.add("spillway:tier_read_seconds", "From asking for a page until it is on the device.",
            tier.read_time, {{"tier", name}});
  });
  for_each_tier(stats, [&](const char* name, Tier tier) {
    out.add("spillway:tier_write_seconds",
            "From beginning to write a page until the tier has it; on NVMe, flushed.",
            tier.write_time, {{"tier", name}});
  });
  out.add("spillway:tier_other_pages", "Pages of other models or settings; they go first.", kGauge,
          double(stats.tiers.other_pages));
  if (stats.tiers.nvme.capacity_bytes > 0) {
    out.add("spillway:tier_scrubbed_pages_total",
            "Stored pages that were read while idle to see whether they verify.", kCounter,
            double(stats.tiers.scrubbed_pages), {{"tier", "nvme"}});
    out.add("spillway:tier_scrub_dropped_pages_total", "Of these, dropped since they did not.",
            kCounter, double(stats.tiers.scrub_dropped_pages), {{"tier", "nvme"}});
  }
  out.add("spillway:tier_loads", "Requests whose pages are coming up.", kGauge, stats.tiers.loads);
  out.add("spillway:steps_under_load_total",
          "Steps that computed while later layers of their prefix still came from NVMe.", kCounter,
          double(stats.tiers.steps_under_load));
  out.add("spillway:steps_in_vain_total", "Of these, thrown away: a layer failed or was late.",
          kCounter, double(stats.tiers.steps_in_vain));
  out.add("spillway:tier_paths_waiting", "Paths that wait to be written.", kGauge,
          double(stats.tiers.paths_waiting));
  out.add("spillway:tier_paths_dropped_total", "Paths not written: too many waited.", kCounter,
          double(stats.tiers.paths_dropped));
  out.add("spillway:compute_seconds_per_token",
          "Of prefill at the front of a prompt, as measured; 0: not yet.", kGauge,
          stats.tiers.compute_seconds_per_token);
}

using Codec = const cache::CodecStats&;

struct CodecValue {
  const char* name;
  const char* help;
  double (*of)(Codec);
};

constexpr CodecValue kCodecValues[] = {
    {"spillway:codec_encoded_pages_total", "Pages written smaller than they are.",
     [](Codec c) { return double(c.encoded); }},
    {"spillway:codec_bytes_before_total", "Their bytes as they are.",
     [](Codec c) { return double(c.bytes_before); }},
    {"spillway:codec_bytes_after_total", "Their bytes in the tier.",
     [](Codec c) { return double(c.bytes_after); }},
    {"spillway:codec_kept_pages_total", "Pages written as they are in spite of a codec.",
     [](Codec c) { return double(c.kept); }},
    {"spillway:codec_decoded_pages_total", "Pages read and decoded.",
     [](Codec c) { return double(c.decoded); }},
    {"spillway:codec_failed_pages_total", "Pages that did not decode; none was served.",
     [](Codec c) { return double(c.failed); }},
};

void add_codecs(Scrape& out, const cache::TiersStats& tiers) {
  for (const CodecValue& value : kCodecValues) {
    if (tiers.host.capacity_bytes > 0) {
      out.add(value.name, value.help, kCounter, value.of(tiers.host_codec), {{"tier", "host"}});
    }
    if (tiers.nvme.capacity_bytes > 0) {
      out.add(value.name, value.help, kCounter, value.of(tiers.nvme_codec), {{"tier", "nvme"}});
    }
  }
}

void add_disk(Scrape& out, const scheduler::EngineStats& stats) {
  const io::BlockStoreStats& store = stats.tiers.store;
  if (stats.tiers.nvme.capacity_bytes > 0) {
    out.add("spillway:io_info", "How the disk is read and written.", kGauge, 1,
            {{"backend", stats.io_uring ? "io_uring" : "threads"},
             {"mode", store.direct ? "direct" : "buffered"}});
  }
  out.add("spillway:store_read_only", "1 while the disk takes no writes; reads go on.", kGauge,
          store.read_only ? 1 : 0);
  const std::pair<const char*, uint64_t> errors[] = {{"read", store.read_errors},
                                                     {"write", store.write_errors},
                                                     {"flush", store.flush_errors},
                                                     {"deadline", store.deadlines},
                                                     {"corrupt", store.corrupt}};
  for (const auto& [kind, count] : errors) {
    out.add("spillway:store_errors_total", "What went wrong in the store, by kind.", kCounter,
            double(count), {{"kind", kind}});
  }
  const io::RingStats& ring = stats.ring;
  const std::pair<const char*, uint64_t> operations[] = {
      {"read", ring.reads}, {"write", ring.writes}, {"flush", ring.syncs}};
  for (const auto& [kind, count] : operations) {
    out.add("spillway:io_operations_total", "Disk operations that ended, by kind.", kCounter,
            double(count), {{"kind", kind}});
  }
  out.add("spillway:io_bytes_total", "Bytes read from disk and written to it, the index included.",
          kCounter, double(ring.read_bytes), {{"kind", "read"}});
  out.add("spillway:io_bytes_total", "", kCounter, double(ring.written_bytes), {{"kind", "write"}});
  out.add("spillway:io_in_flight", "Disk operations in flight.", kGauge, ring.in_flight);
  out.add("spillway:io_queued", "Disk operations that wait for an entry.", kGauge, ring.queued);
  out.add("spillway:io_errors_total", "Disk operations that the system failed.", kCounter,
          double(ring.errors));
  out.add("spillway:io_abandoned_total", "Disk operations that nobody waited for any more.",
          kCounter, double(ring.abandoned));
}

void add_engine(Scrape& out, const scheduler::EngineStats& stats) {
  out.add("vllm:num_requests_running", "Sequences in the running batch.", kGauge, stats.running);
  out.add("vllm:num_requests_waiting", "Requests that wait.", kGauge, stats.waiting);
  out.add("vllm:num_preemptions_total", "Preemptions.", kCounter, double(stats.preemptions));
  out.add("spillway:turns_total", "Of these, swapped out so that another could run.", kCounter,
          double(stats.turns));
  out.add("spillway:swapped_bytes_total", "KV bytes that preempted sequences had to have again.",
          kCounter, double(stats.swapped_bytes));
  out.add("spillway:swapped_bytes_per_token", "Of these, per token generated lately.", kGauge,
          stats.swapped_bytes_per_token);
  out.add("spillway:turns_among", "Sequences that take turns; fewer while that costs too much.",
          kGauge, std::min(stats.turns_among, stats.running + stats.waiting));
  out.add("spillway:devices_lost_total", "Devices that ended while they ran.", kCounter,
          double(stats.devices_lost));
  out.add("spillway:device_rebuilds_total",
          "Times that a device took the place of one that ended, or that none was to be had.",
          kCounter, double(stats.devices_rebuilt), {{"result", "ok"}});
  out.add("spillway:device_rebuilds_total",
          "Times that a device took the place of one that ended, or that none was to be had.",
          kCounter, double(stats.rebuilds_failed), {{"result", "failed"}});
  out.add("spillway:replayed_sequences_total",
          "Sequences that began again, for the device with their pages ended.", kCounter,
          double(stats.replayed));
  out.add("spillway:thrashed_total", "Times that fewer were let take turns, for it cost too much.",
          kCounter, double(stats.thrashed));
  out.add("vllm:prompt_tokens_total", "Prompt tokens processed.", kCounter,
          double(stats.prompt_tokens));
  out.add("vllm:prompt_tokens_cached_total", "Prompt tokens whose KV came from the cache.",
          kCounter, double(stats.cached_tokens));
  out.add("vllm:generation_tokens_total", "Tokens generated.", kCounter,
          double(stats.generated_tokens));
  out.add("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix tree.",
          kCounter, double(stats.prefix_queries));
  out.add("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix tree.", kCounter,
          double(stats.prefix_hits));
  out.add("spillway:steps_total", "Steps of the engine.", kCounter, double(stats.steps));
  out.add("spillway:evicted_pages_total", "Pages evicted.", kCounter, double(stats.evicted_pages));
  out.add("spillway:tree_nodes", "Nodes of the prefix tree.", kGauge, double(stats.tree_nodes));
  out.add("spillway:tree_namespaces", "Namespaces of the prefix tree.", kGauge,
          double(stats.tree_namespaces));
  out.add("spillway:sessions", "Open sessions with a soft lease.", kGauge, stats.sessions);
  out.add("spillway:session_prefetches_total", "Sessions whose pages came up before their request.",
          kCounter, double(stats.prefetches));
  out.add("spillway:session_prefetched_tokens_total", "Tokens of these that came up.", kCounter,
          double(stats.prefetched_tokens));
  out.add("spillway:pinned_prefixes", "Prefixes pinned by clients.", kGauge, stats.pins);
  out.add("spillway:pinned_prefix_pages", "Pages that they cover.", kGauge, stats.pinned_pages);
  out.add("spillway:pinned_prefix_pages_max", "Pages that they may cover (--kv-pin-limit).", kGauge,
          stats.pinned_pages_max);
  out.add("spillway:static_parts", "Static parts of prompts and chains of responses, held.", kGauge,
          stats.static_parts);
}

}  // namespace

std::vector<MetricFamily> engine_metrics(const scheduler::EngineStats& stats,
                                         std::string_view model_name, uint32_t page_tokens) {
  Scrape scrape(model_name);
  add_engine(scrape, stats);
  add_pools(scrape, stats, page_tokens);
  if (stats.has_tiers) {
    add_tiers(scrape, stats);
    add_disk(scrape, stats);
    add_codecs(scrape, stats.tiers);
  }
  return scrape.take();
}

}  // namespace spillway::server
