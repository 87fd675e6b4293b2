#include "server/debug_cache.h"

#include <boost/json.hpp>

#include "server/api/json_text.h"

namespace spillway::server {

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
  return to_json(json::object{
      {"page_tokens", model.page_tokens},
      {"prefix_caching", model.prefix_caching},
      {"pools", std::move(groups)},
      {"tree", {{"nodes", stats.tree_nodes}, {"namespaces", stats.tree_namespaces}}},
      {"evicted_pages", stats.evicted_pages},
      {"sessions", stats.sessions},
      {"running", stats.running},
      {"waiting", stats.waiting},
      {"prefix_tokens", {{"queried", stats.prefix_queries}, {"found", stats.prefix_hits}}},
      {"prompt_tokens", stats.prompt_tokens},
      {"cached_tokens", stats.cached_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"preemptions", stats.preemptions}});
}

}  // namespace spillway::server
