// The engine with tiers below its device, in simulation: pages go down and come up again in any
// order of events, and every answer is that of a run without any cache.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

// cases K1, K5, K6, K9, K12, K14, K15, K16, K18
TEST(TiersSimulation, answers_are_those_of_a_run_without_cache_with_a_host_tier) {
  uint64_t hits = 0, evictions = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    const uint64_t i = base_seed() + run;
    WorldOptions options = options_of_seed(i);
    options.host_pages = 30 + 40 * static_cast<uint32_t>(i % 4);
    options.own_memory = i % 4 == 3;
    options.key_mode = i % 10 == 9 ? cache::KeyMode::kConstant : cache::KeyMode::kHash;
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(options.seed));
    World world(options);
    world.run_random(500);
    hits += world.tiers_stats().host.hits;
    evictions += world.tiers_stats().host.evictions;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(hits, 200u);
  EXPECT_GT(evictions, 1000u);
}

WorldOptions options_of(uint64_t i, sim::SimFiles& files) {
  WorldOptions options = options_of_seed(i);
  options.host_pages = i % 3 == 0 ? 30 + 20 * static_cast<uint32_t>(i % 4) : 0;
  options.own_memory = i % 4 == 3;
  options.files = &files;
  options.nvme_bytes = (1u << 20) << (i % 4);
  options.faults.latency_max = std::chrono::microseconds(200 << (i % 6));
  options.key_mode = i % 10 == 9 ? cache::KeyMode::kConstant : cache::KeyMode::kHash;
  return options;
}

// cases K1, K5, K6, K9, K12, K14, K15, K16, K18
TEST(TiersSimulation, answers_are_those_of_a_run_without_cache_with_nvme) {
  uint64_t hits = 0, evictions = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    const uint64_t i = base_seed() + run;
    sim::SimFiles files;
    const WorldOptions options = options_of(i, files);
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(options.seed));
    World world(options);
    world.run_random(500);
    hits += world.tiers_stats().nvme.hits;
    evictions += world.tiers_stats().nvme.evictions;
    EXPECT_EQ(world.tiers_stats().nvme.corrupt, 0u);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(hits, 200u);
  EXPECT_GT(evictions, 200u);
}

// cases S1 to S3, S6, S7, S9 to S11
TEST(TiersSimulation, a_disk_that_fails_in_every_way_changes_no_answer) {
  uint64_t hits = 0, errors = 0, corrupt = 0;
  for (uint64_t run = 0; run < 60; ++run) {
    const uint64_t i = base_seed() + run;
    sim::SimFiles files;
    WorldOptions options = options_of(i, files);
    options.nvme_bytes = 8u << 20;
    sim::SimDiskFaults& faults = options.faults;
    const double rare = i % 2 == 0 ? 0.02 : 0.2;
    faults.stall = i % 4 == 0 ? 0.01 : 0;
    faults.read_error = i % 3 == 0 ? rare : 0;
    faults.short_read = i % 5 == 0 ? rare : 0;
    faults.bit_rot = i % 3 == 1 ? rare : 0;
    faults.write_error = i % 6 == 0 ? rare : 0;
    faults.no_space = i % 7 == 0 ? rare : 0;
    faults.torn_write = i % 4 == 1 ? rare : 0;
    faults.lost_write = i % 4 == 2 ? rare : 0;
    faults.misdirected_write = i % 4 == 3 ? rare : 0;
    faults.failed_sync = i % 8 == 5 ? rare : 0;
    SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(options.seed));
    World world(options);
    world.run_random(400);
    hits += world.tiers_stats().nvme.hits;
    errors += world.tiers_stats().nvme.errors;
    corrupt += world.tiers_stats().nvme.corrupt;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(hits, 200u);
  EXPECT_GT(errors, 20u);
  EXPECT_GT(corrupt, 20u);
}

// case S5, K18: what was on disk when the process died is served to the next one, or is not there.
TEST(TiersSimulation, a_killed_process_leaves_pages_that_the_next_one_serves) {
  uint64_t found = 0, hits = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    const uint64_t i = base_seed() + run;
    sim::SimFiles files;
    WorldOptions options = options_of(i, files);
    options.nvme_bytes = 8u << 20;
    options.clear_at_end = false;
    for (uint64_t life = 0; life < 3; ++life) {
      SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(i) + " life " + std::to_string(life));
      World world(options);
      found += world.tiers().stats().nvme.pages;
      if (life < 2) world.kill_after(random_at(options.seed, 7, life) % 2000);
      world.run_random(150);
      hits += world.tiers_stats().nvme.hits;
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(found, 500u);
  EXPECT_GT(hits, 200u);
}

// case S13: another model's pages are neither served nor lost, as long as there is room.
TEST(TiersSimulation, models_that_share_a_store_keep_their_own_pages) {
  uint64_t kept = 0, gone = 0, hits = 0;
  for (uint64_t run = 0; run < 20; ++run) {
    const uint64_t i = base_seed() + run;
    sim::SimFiles files;
    WorldOptions options = options_of(i, files);
    options.clear_at_end = false;
    uint64_t pages[2] = {0, 0};
    bool whole[2] = {true, true};  // the other took no page away
    for (uint64_t life = 0; life < 4; ++life) {
      SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(i) + " life " + std::to_string(life));
      const uint64_t own = life % 2;
      options.fingerprint = own == 0 ? "one" : "two";
      World world(options);
      const cache::TiersStats found = world.tiers().stats();
      // Of what is left of a path only its beginning can be found.
      EXPECT_LE(found.nvme.pages, pages[own]);
      if (whole[own]) EXPECT_EQ(found.nvme.pages, pages[own]);
      EXPECT_EQ(found.other_pages, pages[1 - own]);
      world.run_random(100);
      const cache::TiersStats& end = world.tiers_stats();
      EXPECT_LE(end.other_pages, found.other_pages);
      whole[own] = true;
      whole[1 - own] = end.other_pages == found.other_pages;
      kept += end.other_pages;
      gone += found.other_pages - end.other_pages;
      if (life >= 2) hits += end.nvme.hits;
      pages[own] = end.nvme.pages;
      pages[1 - own] = end.other_pages;
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(kept, 500u);
  EXPECT_GT(gone, 50u);
  EXPECT_GT(hits, 100u);
}

// Pages that could not be written, and pages that were evicted, leave none behind that nobody
// finds.
TEST(TiersSimulation, all_that_the_store_holds_is_found_after_a_restart) {
  uint64_t found = 0, errors = 0, evictions = 0;
  for (uint64_t run = 0; run < 30; ++run) {
    const uint64_t i = base_seed() + run;
    sim::SimFiles files;
    WorldOptions options = options_of(i, files);
    options.nvme_bytes = (512u << 10) << (i % 4);
    options.clear_at_end = false;
    options.faults_to_the_end = false;
    options.faults.write_error = i % 2 == 0 ? 0 : 0.02;
    options.faults.no_space = i % 3 == 0 ? 0.01 : 0;
    uint64_t pages = 0;
    bool erased = true;  // what was to be erased at the end is
    for (uint64_t life = 0; life < 3; ++life) {
      SCOPED_TRACE("SPILLWAY_SIM_SEED=" + std::to_string(i) + " life " + std::to_string(life));
      World world(options);
      EXPECT_GE(world.tiers().stats().nvme.pages, pages);
      if (erased) EXPECT_EQ(world.tiers().stats().nvme.pages, pages);
      world.run_random(150);
      pages = world.tiers_stats().nvme.pages;
      erased = !world.tiers_stats().store.read_only;
      found += pages;
      errors += world.tiers_stats().nvme.errors;
      evictions += world.tiers_stats().nvme.evictions;
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(found, 1000u);
  EXPECT_GT(errors, 100u);
  EXPECT_GT(evictions, 500u);
}

// 30 pages on a device above a disk, and steps that take their time.
WorldOptions options_of_small_device(sim::SimFiles& files) {
  WorldOptions options;
  options.seed = base_seed();
  options.pages = 30;
  options.files = &files;
  options.nvme_bytes = 8u << 20;
  options.step_time = std::chrono::milliseconds(1);
  return options;
}

// A stream that needs a page does not wait for the disk that another's pages come from.
TEST(TiersSimulation, a_decode_without_room_does_not_wait_for_the_load_of_another) {
  for (const bool other_came_first : {false, true}) {
    sim::SimFiles files;
    WorldOptions options = options_of_small_device(files);
    options.take_turns = false;
    World world(options);
    const auto prompt = [](uint32_t seed, uint32_t tokens, uint32_t max_tokens) {
      Request request;
      for (uint32_t at = 0; at < tokens; ++at) {
        request.prompt.push_back(1 + (at * (seed + 3) + seed) % 20);
      }
      request.stop.max_tokens = max_tokens;
      request.stop.ignore_eos = true;
      return request;
    };
    std::shared_ptr<Client> stream;
    std::shared_ptr<Client> loading;
    const auto stall = [&] {
      world.disk().faults.stall = 1;
      Request loads = prompt(1, 161, 40);
      loads.priority = other_came_first ? -1 : 0;
      stream = world.submit(prompt(3, 17, 330));
      world.when([&] { return world.steps().stats().generated_tokens >= 80; },
                 [&world, &loading, loads] { loading = world.submit(loads); });
    };
    world.run_idle_stages({[&] { world.submit(prompt(1, 160, 1)); },
                           [&] { world.submit(prompt(2, 380, 1)); }, stall});
    ASSERT_NE(loading, nullptr);
    EXPECT_EQ(loading->usage().matched_tokens, 160u);
    EXPECT_LT(stream->longest_gap(), std::chrono::milliseconds(300)) << other_came_first;
  }
}

struct StreamsRun {
  EngineStats stats;
  uint64_t nvme_hits = 0;
  double longest_queue_s = 0, mean_decode_s = 0;
};

// Streams of 40 + 140 tokens, all there at once.
StreamsRun run_streams(const WorldOptions& options, uint32_t count) {
  World world(options);
  std::vector<std::shared_ptr<Client>> clients;
  for (uint32_t i = 0; i < count; ++i) {
    Request request;
    for (uint32_t at = 0; at < 40; ++at) request.prompt.push_back(1 + (at * (i + 3) + i) % 20);
    request.stop.max_tokens = 140;
    request.stop.ignore_eos = true;
    clients.push_back(world.submit(request));
  }
  world.run_to_end();  // every answer is checked
  StreamsRun run;
  run.stats = world.steps().stats();
  run.nvme_hits = world.tiers_stats().nvme.hits;
  for (const auto& client : clients) {
    run.longest_queue_s = std::max(run.longest_queue_s, client->usage().queue_seconds);
    run.mean_decode_s += client->usage().decode_seconds / count;
  }
  return run;
}

WorldOptions options_of_streams(sim::SimFiles& files, uint32_t at_a_time) {
  WorldOptions options;
  options.seed = base_seed();
  options.pages = 12 * at_a_time;
  options.sequences = 64;
  options.control_thrash = true;
  options.files = &files;
  options.nvme_bytes = 32u << 20;
  options.step_time = std::chrono::milliseconds(10);
  return options;
}

// Who comes next takes pages at once: what it would take from is written first.
TEST(TiersSimulation, prompts_that_follow_each_other_at_once_lose_no_pages) {
  for (const uint32_t host_pages : {0u, 120u}) {
    sim::SimFiles files;
    WorldOptions options = options_of_small_device(files);
    options.host_pages = host_pages;
    options.staging_bytes = 256u << 10;
    options.faults.latency_min = options.faults.latency_max = std::chrono::microseconds(100);
    World world(options);
    const auto prompt = [](uint32_t seed) {
      Request request;
      for (uint32_t at = 0; at < 385; ++at) {
        request.prompt.push_back(1 + (at * (seed + 3) + seed) % 20);
      }
      request.stop.max_tokens = 2;
      request.stop.ignore_eos = true;
      return request;
    };
    std::vector<std::shared_ptr<Client>> asked;
    std::function<void()> ask_next = [&] {
      if (asked.size() == 6) return;
      asked.push_back(world.submit(prompt(asked.size() % 2)));
      world.when([&] { return asked.back()->done(); }, ask_next);
    };
    world.run_idle_stages({ask_next});
    ASSERT_EQ(asked.size(), 6u);
    for (size_t i = 2; i < asked.size(); ++i) {
      EXPECT_EQ(asked[i]->usage().matched_tokens, 384u) << i;
    }
  }
}

// A page that is being read when the cache is reset stays until the read has ended, and no longer.
TEST(TiersSimulation, a_reset_while_pages_are_read_leaves_none_that_nobody_finds) {
  sim::SimFiles files;
  WorldOptions options = options_of_small_device(files);
  options.clear_at_end = false;
  Request request;
  for (uint32_t at = 0; at < 300; ++at) request.prompt.push_back(1 + at % 20);
  request.stop.max_tokens = 1;
  Request others = request;
  for (model::TokenId& token : others.prompt) token = 1 + (token + 6) % 20;
  uint64_t resets = 0, left = 0;
  {
    World world(options);
    world.run_idle_stages({[&] { world.submit(request); }, [&] { world.submit(others); },
                           [&] {
                             world.disk().faults.latency_min = std::chrono::milliseconds(20);
                             world.disk().faults.latency_max = std::chrono::milliseconds(20);
                             world.submit(request);
                             world.when([&] { return world.disk().stats().in_flight >= 3; },
                                        [&] {
                                          world.steps().push(
                                              ResetCacheCommand{[&](uint64_t) { ++resets; }});
                                          world.cancel(static_cast<RequestId>(3));
                                        });
                           }});
    left = world.tiers_stats().nvme.pages;
  }
  EXPECT_EQ(resets, 1u);
  World world(options);
  EXPECT_EQ(world.tiers().stats().nvme.pages, left);
  world.run_to_end();
}

// case K16: long streams of which the device holds four at a time all move on, in turns, or wait
// for a place.
TEST(TiersSimulation, more_streams_than_the_device_holds_take_turns_or_wait) {
  sim::SimFiles files[2];
  WorldOptions options = options_of_streams(files[0], 4);
  const StreamsRun in_turns = run_streams(options, 12);  // --prefer throughput
  EXPECT_GT(in_turns.stats.turns, 6u);
  // Each turn is paid for by 32 tokens at least, and what comes back is loaded.
  EXPECT_LE(in_turns.stats.turns * 32, 12 * 140u);
  EXPECT_GT(in_turns.nvme_hits, 20u);

  options.files = &files[1];
  options.take_turns = false;
  const StreamsRun one_by_one = run_streams(options, 12);  // --prefer latency
  EXPECT_EQ(one_by_one.stats.turns, 0u);
  // In turns nobody waits as long for the first token; in place of that nobody is interrupted.
  EXPECT_LT(in_turns.longest_queue_s, one_by_one.longest_queue_s * 0.8);
  EXPECT_LT(one_by_one.mean_decode_s, in_turns.mean_decode_s * 0.8);
}

// The timeline of streams in turns has each step, read and wait, and nothing else.
TEST(TiersSimulation, the_timeline_tells_what_happened_when) {
  sim::SimFiles files;
  WorldOptions options = options_of_streams(files, 4);
  options.trace = true;
  options.faults.latency_max = std::chrono::milliseconds(30);
  World world(options);
  std::vector<std::shared_ptr<Client>> clients;
  for (uint32_t i = 0; i < 8; ++i) {
    Request request = prompt_of(40, 140);
    request.tenant = std::to_string(i);
    clients.push_back(world.submit(request));
  }
  world.run_to_end();
  const EngineStats stats = world.steps().stats();
  std::map<std::string, uint64_t> count;
  std::map<TraceLane, uint64_t> in_lane;
  uint64_t overlapping = 0, evicted = 0;
  std::vector<const TraceEvent*> steps;
  for (const TraceEvent& event : world.timeline().events) {
    ++count[(event.lane == TraceLane::kRequests ? "request " : "") + std::string(event.name)];
    ++in_lane[event.lane];
    if (event.lane == TraceLane::kSteps) steps.push_back(&event);
    if (event.moment && std::string(event.name) == "evicted from the device") {
      evicted += static_cast<uint64_t>(event.arguments[0].value);
    }
    if (!event.moment) EXPECT_LE(event.begin, event.end) << event.name;
  }
  for (const TraceEvent& event : world.timeline().events) {
    if (event.lane != TraceLane::kReads) continue;
    // What is quicker to compute by then is called off.
    const std::string result = event.result;
    EXPECT_TRUE(result == "ok" || result == "nobody waited any more") << result;
    overlapping += std::any_of(steps.begin(), steps.end(), [&](const TraceEvent* step) {
      return step->begin < event.end && event.begin < step->end;
    });
  }
  EXPECT_EQ(steps.size(), stats.steps);
  for (const char* phase : {"queued", "prefill", "decode"}) {
    EXPECT_EQ(count[std::string("request ") + phase], 8u) << phase;
  }
  EXPECT_EQ(count["request swapped out"], stats.preemptions);
  EXPECT_GT(stats.turns, 4u);
  EXPECT_GT(count["request load"], 0u);
  EXPECT_GE(in_lane[TraceLane::kReads], world.tiers_stats().nvme.reads);
  EXPECT_GE(count["write"], world.tiers_stats().nvme.writes);
  EXPECT_GT(count["flush"], 0u);
  EXPECT_GT(overlapping, 10u);
  EXPECT_EQ(evicted, stats.evicted_pages);
  EXPECT_GT(evicted, 0u);
  EXPECT_GE(count["plan"] + 1, stats.steps);  // the first began at the clock's zero
  EXPECT_EQ(count["take the step"], stats.steps);
}

// case I4
TEST(TiersSimulation, the_timeline_of_a_tenant_shows_the_others_without_sizes) {
  sim::SimFiles files;
  WorldOptions options = options_of_streams(files, 4);
  options.trace = true;
  options.faults.latency_max = std::chrono::milliseconds(30);
  World world(options);
  for (uint32_t i = 0; i < 8; ++i) {
    Request request = prompt_of(40 + i, 100);
    request.tenant = i % 4 == 0 ? "one" : std::to_string(i);
    world.submit(request);
  }
  std::optional<TraceSnapshot> own, all;
  world.run_steps_then(150, [&] {
    for (auto* taken : {&own, &all}) {
      world.steps().push(StartTraceCommand{});
      std::optional<std::string> tenant;
      if (taken == &own) tenant = "one";
      world.steps().push(TakeTraceCommand{
          {}, tenant, [taken](TraceSnapshot snapshot) { *taken = std::move(snapshot); }});
    }
  });
  ASSERT_TRUE(own && all);
  std::set<uint64_t> rows, all_rows;
  size_t spans = 0, all_spans = 0;
  for (const TraceEvent& event : own->events) {
    const bool request = event.lane == TraceLane::kRequests;
    if (request) rows.insert(event.id);
    spans += !request;
    EXPECT_EQ(event.arguments[0].name != nullptr, request) << event.name;
  }
  for (const TraceEvent& event : all->events) {
    if (event.lane == TraceLane::kRequests) all_rows.insert(event.id);
    all_spans += event.lane != TraceLane::kRequests;
  }
  EXPECT_EQ(rows, (std::set<uint64_t>{1, 5}));
  EXPECT_GT(all_rows.size(), 4u);
  EXPECT_EQ(spans, all_spans);
  EXPECT_GT(spans, 100u);
  EXPECT_NE(trace_json(*own).find("\"others\":\"hidden\""), std::string::npos);
  EXPECT_EQ(trace_json(*all).find("\"others\":\"hidden\""), std::string::npos);
}

// case S1: pages rot while nobody asks for them. Scrubbing finds all, so the next prompt counts on
// none, and its answer is what it was. It reads nothing while requests run.
TEST(TiersSimulation, what_rots_while_nobody_asks_is_found_by_scrubbing) {
  sim::SimFiles files;
  WorldOptions options;
  options.files = &files;
  options.scrub_pause = std::chrono::milliseconds(1);
  options.scrub_rest = std::chrono::milliseconds(20);
  World world(options);
  const Request request = prompt_of(200, 8);
  std::vector<std::shared_ptr<Client>> asked = {world.submit(request)};
  uint64_t scrubbed = 0, stored = 0;  // when the latest was submitted; before the rot
  world.run_to_end([&] {
    const cache::TiersStats stats = world.tiers().stats();
    if (!asked.back()->done()) {
      EXPECT_LE(stats.scrubbed_pages, scrubbed + 1);
      return;
    }
    if (asked.size() == 2) {
      world.steps().push(ShutDownCommand{});
    } else if (stored > 0) {
      if (stats.nvme.pages > 0) return;
      EXPECT_EQ(stats.scrub_dropped_pages, stored);
      EXPECT_EQ(stats.nvme.errors, stored);
      scrubbed = stats.scrubbed_pages;
      asked.push_back(world.submit(request));
    } else if (stats.scrubbed_pages >= 12) {  // each is good, and was read
      EXPECT_EQ(stats.scrub_dropped_pages, 0u);
      stored = stats.nvme.pages;
      sim::SimImage& image = *files.find("store/pages.kv");
      const uint64_t pages = stats.store.file_bytes - stats.store.capacity_bytes;
      for (uint64_t at = pages; at < image.size(); at += io::kSectorBytes) image.flip_bit(at, 1);
      world.forget_on_device();
    }
  });
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_GE(stored, 12u);
  EXPECT_EQ(asked[1]->usage().matched_tokens, 0u);
  EXPECT_EQ(world.tiers_stats().nvme.errors, stored);
}

// Where bringing pages back takes the disk's time, fewer streams take turns, and all end.
TEST(TiersSimulation, streams_that_thrash_are_fewer_and_all_end) {
  uint64_t thrashed = 0;
  for (const double bytes_per_s : {0.0, 1e6, 5e5, 2e5}) {
    sim::SimFiles files;
    WorldOptions options = options_of_streams(files, 10);
    options.faults.bytes_per_s = bytes_per_s;
    const StreamsRun run = run_streams(options, 48);
    EXPECT_GT(run.stats.turns, 0u) << bytes_per_s;
    EXPECT_GT(run.stats.swapped_bytes, 0u) << bytes_per_s;
    thrashed += run.stats.thrashed;
  }
  EXPECT_GT(thrashed, 0u);
}

}  // namespace
}  // namespace spillway::scheduler
