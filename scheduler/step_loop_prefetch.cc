// Pages of an open session that left the device come up again while its client still types: as a
// sequence that computes nothing, takes what a load brings it, and leaves the pages to the session.
// What runs or waits goes before it: its reads wait for those of requests, it takes only free pages
// and such as nobody holds, and gives up all as soon as a request wants the room.
#include <algorithm>
#include <utility>

#include "scheduler/step_loop.h"

namespace spillway::scheduler {
void StepLoop::remember_session(const LiveSequence& sequence) {
  const Request& request = sequence.request->request;
  if (parts_.tiers == nullptr || request.session.empty() || !options_.prefix_caching) return;
  const uint32_t page_tokens = parts_.cache.page_tokens();
  const uint32_t whole = sequence.pages->size() / page_tokens * page_tokens;
  if (whole == 0) return;
  SessionPath path{.session = request.session, .tokens = {}, .keys = {}};
  path.tokens.assign(sequence.tokens.begin(), sequence.tokens.begin() + whole);
  path.tokens.push_back(0);  // the last token is left to compute: it shall not be a page's
  path.keys = parts_.cache.keys(request.tenant, request.cache_salt, path.tokens);
  session_paths_.put(std::move(path));
}

void StepLoop::prefetch(const std::string& session) {
  const SessionPath* path = session_paths_.find(session);
  if (path == nullptr || parts_.tiers == nullptr || !waiting_.empty() || shutting_down_) return;
  if (device_state_ != DeviceState::kWorks) return;
  if (prefetches_.size() >= kPrefetchesMax) return;
  const auto is_it = [&](const auto& one) { return one->session == session; };
  if (std::any_of(prefetches_.begin(), prefetches_.end(), is_it)) return;
  const uint32_t here = parts_.cache.match_length(path->keys, path->tokens);
  if (parts_.tiers->match_length(path->keys, path->tokens, here) <= here) return;
  auto made = std::make_unique<Prefetch>();
  made->session = session;
  made->tokens = path->tokens;
  made->pages = parts_.cache.begin(path->keys, path->tokens);
  made->load = parts_.tiers->begin_prefetch(path->keys, path->tokens, *made->pages);
  if (made->load == nullptr) {
    parts_.cache.release(std::move(made->pages), session);
    return;
  }
  ++counters_.prefetches;
  prefetches_.push_back(std::move(made));
}

// Between steps: takes what has come, and ends those with nothing left to come.
void StepLoop::advance_prefetches() {
  for (auto& prefetch : prefetches_) {
    const uint32_t before = prefetch->pages->size();
    parts_.tiers->adopt(*prefetch->load, *prefetch->pages, prefetch->tokens);
    counters_.prefetched_tokens += prefetch->pages->size() - before;
    const auto coming = prefetch->load->coming();
    const bool over = std::all_of(coming.begin(), coming.end(), [](auto n) { return n == 0; });
    if (over) end_prefetch(*prefetch);
  }
  std::erase_if(prefetches_, [](const auto& one) { return one->pages == nullptr; });
}

void StepLoop::end_prefetch(Prefetch& prefetch) {
  parts_.tiers->give_up(std::exchange(prefetch.load, nullptr));
  const bool open = session_paths_.find(prefetch.session) != nullptr;
  parts_.cache.release(std::move(prefetch.pages), open ? prefetch.session : std::string());
  prefetch.pages = nullptr;
}

// A request of the session takes over from where the prefetch is. "": of all sessions.
void StepLoop::cancel_prefetches(const std::string& session) {
  if (prefetches_.empty()) return;
  advance_prefetches();
  for (auto& prefetch : prefetches_) {
    if (session.empty() || prefetch->session == session) end_prefetch(*prefetch);
  }
  std::erase_if(prefetches_, [](const auto& one) { return one->pages == nullptr; });
}

}  // namespace spillway::scheduler
