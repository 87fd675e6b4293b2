// The engine: one thread that owns scheduler and cache, and runs the step loop.
// submit(), cancel(), end_session(), pins(), unpin(), stats() and reset_prefix_cache() may be
// called from any thread; they go through bounded queues.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/eviction_policy.h"
#include "cache/tiers.h"
#include "io/ring.h"
#include "kernels/device.h"
#include "kernels/page_codec.h"
#include "model/runner.h"
#include "model/tokenizer.h"
#include "runtime/clock.h"
#include "runtime/result.h"
#include "runtime/trace.h"
#include "scheduler/request.h"

namespace spillway::scheduler {

struct EngineOptions {
  uint64_t kv_device_bytes = 0;     // page pools of all groups together
  uint32_t context_tokens_max = 0;  // prompt and output of one sequence
  uint32_t sequences_max = 256;     // running at once (--max-num-seqs)
  uint32_t step_tokens_max = 2048;  // token budget of one step (--max-num-batched-tokens)
  uint32_t waiting_max = 4096;      // further requests are refused with kResourceExhausted
  bool prefix_caching = true;
  double pin_share_max = 0.25;  // of the device's pages, that pinned prefixes may cover
  uint32_t pin_tenants = 1;     // each has an equal part of that
  cache::EvictionPolicyKind eviction_policy = cache::EvictionPolicyKind::kValue;
  // Tiers below the device; 0 and empty: none.
  uint64_t kv_host_bytes = 0;
  kernels::PageCodec kv_host_codec = kernels::PageCodec::kIdentity;
  std::string kv_nvme_dir{};  // made if it is not there
  uint64_t kv_nvme_bytes = 0;
  cache::WritePolicy kv_nvme_write = cache::WritePolicy::kAuto;
  kernels::PageCodec kv_nvme_codec = kernels::PageCodec::kIdentity;
  // While idle, between two pages that are read to see whether they verify. 0: none is.
  std::chrono::nanoseconds kv_nvme_scrub = std::chrono::seconds(1);
  // More streams than the device holds take turns, so that all go on (--prefer throughput), or wait
  // for a place while those that have one keep their pace (--prefer latency).
  bool take_turns = true;
  bool control_thrash = true;  // fewer take turns where that costs too much, each at longer times
  bool kv_verify_all = false;  // check pages from host memory as well as those from NVMe
  bool io_uring = true;        // false: threads with pread and pwrite
  bool trace = false;          // from the start, until take_trace()
  uint32_t preempt_every_steps = 0;  // tests: preempts a running sequence every N steps; 0 never
  bool load_all = false;  // tests: computes nothing that a tier holds, however slow that is
};

struct PoolStats {  // of one layer group; pages
  uint32_t capacity = 0, free = 0, writable = 0, sealed = 0, filling = 0, orphaned = 0;
  uint32_t pinned = 0;  // sealed pages under a lease
  uint64_t page_bytes = 0;
};

struct EngineStats {
  std::vector<PoolStats> pools;
  uint32_t running = 0, waiting = 0;
  uint64_t steps = 0, preemptions = 0;
  uint64_t turns = 0;  // of these, swapped out so that another could run
  // What turns cost, and how many streams take them: UINT32_MAX for all (thrash_control.h).
  uint64_t swapped_bytes = 0;
  double swapped_bytes_per_token = 0;
  uint32_t turns_among = UINT32_MAX;
  uint64_t thrashed = 0;  // times that it was made less
  // Devices that ended, times that another took the place of what had, or that none was to be had,
  // and sequences that began again for that.
  uint64_t devices_lost = 0, devices_rebuilt = 0, rebuilds_failed = 0, replayed = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;  // tokens asked for, tokens found
  uint64_t tree_nodes = 0, tree_namespaces = 0, evicted_pages = 0;
  uint32_t sessions = 0;
  uint64_t prefetches = 0, prefetched_tokens = 0;  // of sessions, ahead of their requests
  uint32_t pins = 0, pinned_pages = 0, pinned_pages_max = 0;  // pinned prefixes
  uint32_t static_parts = 0;                                  // of prompts, held
  bool has_tiers = false;
  cache::TiersStats tiers;
  io::RingStats ring;
  bool io_uring = false;  // else threads with pread and pwrite
};

class Engine {
 public:
  // `runner`, `device` and `tokenizer` must outlive the engine. Allocates the pools, starts the
  // thread. Fails when the pools cannot hold one sequence of any useful length; the message says
  // how many bytes would do.
  static Result<std::unique_ptr<Engine>> start(const EngineOptions& options, model::Runner& runner,
                                               kernels::Device& device,
                                               const model::Tokenizer& tokenizer);
  // Cancels what runs, waits for it, joins the thread.
  ~Engine();

  // Refuses at once what can never fit, and when the queue is full. On success `sink` gets outputs
  // until one with done; it is released after that.
  Result<RequestId> submit(Request request, std::shared_ptr<OutputSink> sink);
  void cancel(RequestId request);  // ends with FinishReason::kCancelled; unknown ids are ignored
  void end_session(const std::string& session);
  // The session's next request is near: what of its path has left the device may come up.
  void prefetch(const std::string& session);
  // Pinned prefixes of a tenant; both call back on the engine thread.
  void pins(const std::string& tenant, std::function<void(PinList)> then);
  void unpin(const std::string& tenant, const std::string& id, std::function<void(bool)> then);
  // Drops every cached page that no request holds, and every pin; calls back on the engine thread
  // with the count.
  void reset_prefix_cache(std::function<void(uint64_t pages)> then);
  // Records a timeline (runtime/trace.h) from now on. Each start is ended by one take, which calls
  // back on the engine thread with what happened since `begin`.
  void start_trace();
  // With a `tenant` it shows what that one may see (step_trace.h).
  void take_trace(Clock::TimePoint begin, std::optional<std::string> tenant,
                  std::function<void(TraceSnapshot)> then);
  // A snapshot as of the last step, or now when idle. Any thread.
  EngineStats stats() const;
  // What the engine sleeps in: "io_uring", or "ppoll" and why not io_uring (case S15).
  const std::string& waits_in() const;
  // What was found below the device, for the start-up lines: one sentence a tier.
  const std::vector<std::string>& tier_lines() const;
  uint32_t context_tokens_max() const;  // after shortening to what the pool holds

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::scheduler
