#include "server/debug_cache.h"

#include <boost/json.hpp>

#include "server/api/json_text.h"

namespace spillway::server {
namespace {

json::object tier_object(const cache::TierStats& tier) {
  return {{"capacity_bytes", tier.capacity_bytes},
          {"used_bytes", tier.used_bytes},
          {"pages", tier.pages},
          {"hits", tier.hits},
          {"reads", tier.reads},
          {"writes", tier.writes},
          {"evictions", tier.evictions},
          {"errors", tier.errors},
          {"corrupt", tier.corrupt},
          {"skipped", tier.skipped},
          {"mb_per_s", tier.measured ? json::value(tier.bytes_per_s / 1e6) : json::value(nullptr)},
          {"set_aside", tier.set_aside},
          {"writes_set_aside", tier.writes_set_aside}};
}

}  // namespace

std::string debug_cache_body(const ServedModel& model) {
  const scheduler::EngineStats stats = model.backend->stats();
  json::array groups;
  for (size_t group = 0; group < stats.pools.size(); ++group) {
    const auto& pool = stats.pools[group];
    groups.push_back(json::object{{"group", group},
                                  {"capacity", pool.capacity},
                                  {"free", pool.free},
                                  {"writable", pool.writable},
                                  {"sealed", pool.sealed},
                                  {"filling", pool.filling},
                                  {"orphaned", pool.orphaned},
                                  {"pinned", pool.pinned},
                                  {"page_bytes", pool.page_bytes}});
  }
  json::object tiers;
  if (stats.has_tiers) {
    tiers = {{"host", tier_object(stats.tiers.host)},
             {"nvme", tier_object(stats.tiers.nvme)},
             {"directory_nodes", stats.tiers.directory_nodes},
             {"other_pages", stats.tiers.other_pages},
             {"paths_waiting", stats.tiers.paths_waiting},
             {"paths_dropped", stats.tiers.paths_dropped},
             {"loads", stats.tiers.loads},
             {"scrubbed_pages", stats.tiers.scrubbed_pages},
             {"scrub_dropped_pages", stats.tiers.scrub_dropped_pages},
             {"steps_under_load", stats.tiers.steps_under_load},
             {"steps_in_vain", stats.tiers.steps_in_vain},
             {"compute_us_per_token", stats.tiers.compute_seconds_per_token * 1e6}};
    tiers["nvme"].as_object()["read_only"] = stats.tiers.store.read_only;
    tiers["nvme"].as_object()["file_bytes"] = stats.tiers.store.file_bytes;
  }
  return to_json(json::object{
      {"tiers", std::move(tiers)},
      {"page_tokens", model.page_tokens},
      {"prefix_caching", model.prefix_caching},
      {"pools", std::move(groups)},
      {"tree", {{"nodes", stats.tree_nodes}, {"namespaces", stats.tree_namespaces}}},
      {"evicted_pages", stats.evicted_pages},
      {"sessions", stats.sessions},
      {"pins",
       {{"prefixes", stats.pins},
        {"pages", stats.pinned_pages},
        {"limit_pages", stats.pinned_pages_max}}},
      {"static_parts", stats.static_parts},
      {"running", stats.running},
      {"waiting", stats.waiting},
      {"prefix_tokens", {{"queried", stats.prefix_queries}, {"found", stats.prefix_hits}}},
      {"prompt_tokens", stats.prompt_tokens},
      {"cached_tokens", stats.cached_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"preemptions", stats.preemptions}});
}

}  // namespace spillway::server
