// Requests on the real engine, policy, cache, tiers and store in simulated time: the simulated
// device takes its time for each step by its rows and their positions, and the simulated disk by
// bytes, latency and depth of queue. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {

inline constexpr uint32_t kStepTokens = 512;
inline constexpr uint32_t kDiskDepth = 64;         // reads in flight that SimDisk takes
inline constexpr double kBytesInFlight = 8 << 20;  // WorldOptions::load_bytes_max

struct Model {
  const char* name;
  uint32_t layers;  // 2 KiB a page of 16 tokens each
  double tokens_per_s;

  double token_bytes() const { return layers * 2048.0 / 16; }
  // A token at 8,192 takes twice as long as the first; a step as long as four tokens more.
  double token_s(uint32_t position) const { return (1 + position / 8192.0) / tokens_per_s; }
  double step_s(uint32_t position, uint32_t rows) const {
    double seconds = 0;
    for (uint32_t i = 0; i < rows; ++i) seconds += token_s(position + i);
    return seconds;
  }
  double overhead_s() const { return 4 / tokens_per_s; }
  // Alone, in steps as long as they may be.
  double compute_s(uint32_t begin, uint32_t end) const {
    const uint32_t steps = (end - begin + kStepTokens - 1) / kStepTokens;
    return step_s(begin, end - begin) + steps * overhead_s();
  }
};

struct DiskSpeed {
  double bytes_per_s;
  double latency_s;

  double load_s(const Model& model, uint32_t tokens) const {
    const double in_flight = std::min(kBytesInFlight, kDiskDepth * model.token_bytes() * 16);
    const double rate = std::min(bytes_per_s, in_flight / latency_s);
    return latency_s + tokens * model.token_bytes() / rate;
  }
};

inline sim::SimDiskFaults faults_of(const DiskSpeed& disk) {
  sim::SimDiskFaults faults;
  faults.bytes_per_s = disk.bytes_per_s;
  faults.latency_min = faults.latency_max =
      std::chrono::nanoseconds(static_cast<int64_t>(disk.latency_s * 1e9));
  return faults;
}

// What a client asks: a prefix that was seen, and what follows it.
struct Ask {
  uint32_t prefix, suffix;
};

struct Asked {
  Clock::TimePoint at;
  std::shared_ptr<Client> client;
  double seconds() const {
    return std::chrono::duration<double>(*client->last_token() - at).count();
  }
};

// What is below the device.
struct Below {
  const DiskSpeed* disk = nullptr;
  double host_bytes_per_s = 0;
  uint32_t host_pages = 0;
  bool load_all = false;  // computes nothing that is held
  bool none() const { return disk == nullptr && host_pages == 0; }
};

struct TimedOptions {
  uint32_t pages = 580;  // what the longest request needs, and hardly more
  uint32_t step_tokens = kStepTokens;
  cache::BandLoads bands = cache::BandLoads::kAuto;
};

class TimedWorld {
 public:
  // Nothing below: no cache either.
  TimedWorld(uint64_t seed, const Model& model, const Below& below, TimedOptions timed = {})
      : model_(model), seed_(seed) {
    const DiskSpeed* disk = below.disk;
    WorldOptions options;
    options.seed = seed;
    options.context = 16 << 10;
    options.pages = timed.pages;
    options.host_pages = below.host_pages;
    options.load_all = below.load_all;
    options.step_tokens = timed.step_tokens;
    options.layers = model.layers;
    options.bands = timed.bands;
    options.band_bytes_min = io::BlockStoreOptions{}.band_bytes_min;
    options.nvme_bytes = uint64_t{32 << 10} * static_cast<uint64_t>(model.token_bytes());
    options.staging_bytes = 4 << 20;
    options.codec_bytes = 1 << 20;
    options.prefix_caching = !below.none();
    if (disk != nullptr) {
      options.files = &files_;
      options.faults = faults_of(*disk);
    }
    world_ = std::make_unique<World>(options);
    sim::SimDevice::Speed speed;
    speed.launch_time = [this] { return launch_time(); };
    speed.copy_bytes_per_s = below.host_bytes_per_s;
    world_->device().set_speed(world_->clock(), speed);
  }
  World& world() { return *world_; }

  Asked ask(Ask what, uint32_t max_tokens = 1) {
    Request request;
    for (uint32_t i = 0; i < what.prefix; ++i) request.prompt.push_back(token(what.prefix, i));
    const uint64_t stream = 1'000'000 + asks_++;
    for (uint32_t i = 0; i < what.suffix; ++i) request.prompt.push_back(token(stream, i));
    request.stop.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    return {world_->clock().now(), world_->submit(std::move(request))};
  }

 private:
  model::TokenId token(uint64_t stream, uint64_t i) const {
    return static_cast<model::TokenId>(1 + random_at(seed_, stream, i) % 20);
  }
  // Nothing but steps is launched: nobody records a timeline.
  Clock::Duration launch_time() {
    const model::StepBatch* batch = world_->runner().enqueued();
    CHECK(batch != nullptr);
    double seconds = model_.overhead_s();
    for (const model::SequenceStep& step : batch->sequences) {
      seconds += model_.step_s(step.position, static_cast<uint32_t>(step.tokens.size()));
    }
    seconds /= world_->runner().launches();
    return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }

  const Model model_;
  const uint64_t seed_;
  sim::SimFiles files_;
  std::unique_ptr<World> world_;
  uint64_t asks_ = 0;
};

}  // namespace spillway::scheduler
