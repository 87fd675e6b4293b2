// Eviction policies on a trace of requests: hits by tier and first-token times, for each policy and
// device size. Real tree, real policies, modelled costs (tests/replay/replay.h).
//
//   zcat conversation.jsonl.gz | build/release/replay -            a table
//   build/release/replay --csv out.csv --host 10000 --nvme 100000 trace.jsonl
//   build/release/replay --variations trace.jsonl                  other workloads, default and LRU
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "replay.h"

namespace {

using namespace spillway::replay;
using spillway::cache::EvictionPolicyKind;

struct Named {
  const char* name;
  std::optional<EvictionPolicyKind> policy;
};
constexpr Named kPolicies[] = {{"lru", EvictionPolicyKind::kLru},
                               {"s3fifo", EvictionPolicyKind::kS3Fifo},
                               {"value", EvictionPolicyKind::kValue},
                               {"optimum", std::nullopt}};

void print_policies(const Trace& trace, const std::vector<uint32_t>& sizes, ReplayOptions options,
                    std::FILE* csv) {
  std::printf("%8s %-8s %7s %7s %7s %7s %6s %8s %8s %8s %8s\n", "blocks", "policy", "hits",
              "device", "host", "nvme", "vs lru", "compute", "p50 s", "p90 s", "p99 s");
  if (csv != nullptr) {
    std::fprintf(csv,
                 "device_blocks,host_blocks,nvme_blocks,policy,hit_share,device_share,host_share,"
                 "nvme_share,hits_vs_lru,compute_share,ttft_p50,ttft_p90,ttft_p99\n");
  }
  for (uint32_t size : sizes) {
    double lru = 0;
    for (const auto& [name, policy] : kPolicies) {
      options.device_blocks = size;
      options.policy = policy;
      const ReplayResult result = replay(trace, options);
      if (policy == EvictionPolicyKind::kLru) lru = result.hit_share();
      const double compute = result.compute_seconds / result.compute_seconds_cold;
      std::printf("%8u %-8s %6.2f%% %6.2f%% %6.2f%% %6.2f%% %6.2f %7.1f%% %8.3f %8.3f %8.3f\n",
                  size, name, 100 * result.hit_share(), 100 * result.share(result.device),
                  100 * result.share(result.host), 100 * result.share(result.nvme),
                  result.hit_share() / lru, 100 * compute, result.first_token(0.5),
                  result.first_token(0.9), result.first_token(0.99));
      std::fflush(stdout);
      if (csv == nullptr) continue;
      std::fprintf(csv, "%u,%u,%u,%s,%.5f,%.5f,%.5f,%.5f,%.4f,%.5f,%.4f,%.4f,%.4f\n", size,
                   options.host_blocks, options.nvme_blocks, name, result.hit_share(),
                   result.share(result.device), result.share(result.host),
                   result.share(result.nvme), result.hit_share() / lru, compute,
                   result.first_token(0.5), result.first_token(0.9), result.first_token(0.99));
    }
  }
}

// Hits of the default policy, and its ratio to LRU's, on workloads that are not the trace.
void print_variations(const Trace& trace, const std::vector<uint32_t>& sizes,
                      ReplayOptions options) {
  const std::pair<const char*, Trace> workloads[] = {
      {"the trace", trace},
      {"its first half", time_slice(trace, 0, 2)},
      {"its second half", time_slice(trace, 1, 2)},
      {"half of its users", some_users(trace, 2)},
      {"a fifth of its users", some_users(trace, 5)},
      {"runs of 500, shuffled", shuffled_runs(trace, 500, 1)},
      {"documents, Zipf 0.8", documents({.skew = 0.8})},
      {"documents, Zipf 1.1", documents({.skew = 1.1})},
      {"documents that drift", documents({.drift_every = 400})},
      {"short conversations", conversations({.goes_on = 0.5, .pause = 300})},
      {"conversations", conversations({})},
      {"long conversations", conversations({.goes_on = 0.95, .pause = 30})},
      {"agents", agents(10'000, 1)},
      {"never again", never_again(5000, 1)},
  };
  std::printf("%-24s", "hits (of LRU's)");
  for (uint32_t size : sizes) std::printf("%16u", size);
  std::printf("\n");
  for (const auto& [name, workload] : workloads) {
    std::printf("%-24s", name);
    for (uint32_t size : sizes) {
      options.device_blocks = size;
      options.policy = EvictionPolicyKind::kLru;
      const double lru = replay(workload, options).hit_share();
      options.policy = EvictionPolicyKind::kValue;
      const double value = replay(workload, options).hit_share();
      std::printf("%8.2f%% (%4.2f)", 100 * value, value / lru);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

int run(int argc, char** argv) {
  CLI::App app("Replays a trace through the prefix tree and each eviction policy");
  std::string path, csv_path;
  std::vector<uint32_t> sizes = {300, 1000, 3000, 10'000, 30'000};
  ReplayOptions options;
  bool variations = false;
  app.add_option("trace", path, "A file of JSON lines; - for standard input")->required();
  app.add_option("--device", sizes, "Device sizes in blocks of 512 tokens")->delimiter(',');
  app.add_option("--host", options.host_blocks, "Blocks of the host tier");
  app.add_option("--nvme", options.nvme_blocks, "Blocks of the NVMe tier");
  app.add_option("--tokens-per-second", options.costs.tokens_per_second);
  app.add_option("--double-cost-tokens", options.costs.double_cost_tokens);
  app.add_option("--bytes-per-token", options.costs.bytes_per_token);
  app.add_option("--host-bytes-per-second", options.costs.host_bytes_per_second);
  app.add_option("--nvme-bytes-per-second", options.costs.nvme_bytes_per_second);
  app.add_option("--csv", csv_path, "Writes the table there as well");
  app.add_flag("--variations", variations, "The default policy beside LRU on other workloads");
  CLI11_PARSE(app, argc, argv);
  std::ifstream file;
  if (path != "-") file.open(path);
  auto trace = read_trace(path == "-" ? std::cin : file);
  if (trace && trace->empty()) trace = spillway::invalid_argument("no request in " + path);
  if (!trace) {
    std::fprintf(stderr, "%s\n", trace.error().message.c_str());
    return 1;
  }
  if (variations) {
    print_variations(*trace, sizes, options);
    return 0;
  }
  std::FILE* csv = csv_path.empty() ? nullptr : std::fopen(csv_path.c_str(), "w");
  if (!csv_path.empty() && csv == nullptr) {
    std::perror(csv_path.c_str());
    return 1;
  }
  print_policies(*trace, sizes, options, csv);
  if (csv != nullptr) std::fclose(csv);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv); }
