#include "tiers_machine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/check.h"
#include "runtime/scope.h"

namespace spillway::cache {

TiersMachine::TiersMachine(const TiersShape& shape, uint64_t seed)
    : shape_(shape),
      seed_(seed),
      prng_(seed),
      device_(seed),
      parker_(clock_, device_, seed),
      loop_(clock_, parker_),
      workers_(loop_, prng_) {
  workers_.refuse_one_in = 0;
  parker_.when_idle = [this] { idle_ = true; };
}

TiersMachine::~TiersMachine() { CHECK(cache_ == nullptr); }

Task<> TiersMachine::open_store() {
  io::BlockStoreOptions options;
  options.directory = "store";
  options.bytes = shape_.nvme_bytes;
  std::set<uint32_t> sizes;
  for (uint32_t g = 0; g < cache_->cache().groups(); ++g) {
    sizes.insert(static_cast<uint32_t>(cache_->page_bytes(g)));
  }
  options.slot_bytes.assign(sizes.begin(), sizes.end());
  options.band_bytes_min = shape_.band_bytes_min;
  options.smaller_slots = shape_.nvme_codec != kernels::PageCodec::kIdentity;
  options.seed = 1;
  auto opened = co_await io::BlockStore::open(std::move(options), loop_, *disk_);
  if (opened) store_ = std::move(*opened);
}

std::span<std::byte> TiersMachine::buffers(size_t bytes) {
  memory_.push_back(*device_.allocate(bytes));
  return {memory_.back().data, bytes};
}

void TiersMachine::open(const std::string& fingerprint) {
  CHECK(cache_ == nullptr);
  CacheShape shape = shape_.cache;
  shape.fingerprint = fingerprint;
  shape.secret = 77;
  cache_ = std::make_unique<TestCache>(shape);
  if (shape_.nvme_bytes > 0) {
    disk_ = std::make_unique<sim::SimDisk>(loop_, files_, seed_ + opened_);
    parker_.disk = disk_.get();
    run(open_store());
    CHECK(store_ != nullptr);
  }
  ++opened_;
  size_t largest = 0;
  for (uint32_t g = 0; g < cache_->cache().groups(); ++g) {
    largest = std::max(largest, cache_->page_bytes(g));
  }
  TiersOptions options;
  options.write = shape_.write;
  options.bands = shape_.bands;
  options.scrub_pause = shape_.scrub_pause;
  options.scrub_rest = shape_.scrub_rest;
  options.verify_all = true;
  options.load_bytes_max = shape_.load_bytes_max;
  options.staging = buffers(shape_.staging_pages * largest);
  first_host_ = memory_.size();
  for (uint32_t g = 0; g < shape_.host.size(); ++g) {
    options.host.push_back(
        {buffers(shape_.host[g] * cache_->page_bytes(g)).data(), shape_.host[g]});
  }
  options.host_codec = shape_.host_codec;
  options.nvme_codec = shape_.nvme_codec;
  for (std::span<std::byte>* of : {&options.encode_buffers, &options.decode_buffers,
                                   &options.host_encode_buffers, &options.host_decode_buffers}) {
    *of = buffers(shape_.codec_pages * largest);
  }
  RunWork run_work = [this](std::function<void()> work) { return workers_.run(std::move(work)); };
  tiers_ = std::make_unique<Tiers>(
      options, Tiers::Parts{loop_, cache_->cache(), device_, store_.get(), std::move(run_work)},
      [this](uint32_t pages) {
        return make_eviction_policy(shape_.cache.policy, {.capacity = pages});
      });
}

void TiersMachine::close_tiers() {
  if (!std::exchange(tiers_closed_, true)) run(tiers_->close());
}

void TiersMachine::close(const std::function<void()>& last_look) {
  close_tiers();
  if (store_ != nullptr) {
    run(store_->close());
    run(disk_->drain());
    CHECK(store_->drained());
  }
  last_look();
  before_event = [] {};
  tiers_closed_ = false;
  tiers_.reset();
  store_.reset();
  cache_.reset();
  parker_.disk = nullptr;
  disk_.reset();
  memory_.clear();
}

bool TiersMachine::step() {
  before_event();
  if (loop_.run_one()) return true;
  if (disk_ != nullptr && prng_.below(2) == 0 && disk_->run_one()) return true;
  if (device_.run_one()) return true;
  return disk_ != nullptr && disk_->run_one();
}

bool TiersMachine::park() {
  before_event();
  idle_ = false;
  loop_.park();
  return !idle_;
}

void TiersMachine::run(Task<> task) {
  constexpr int kStepsMax = 2'000'000;
  // Not on the stack: in a test in which a failed CHECK throws, it may not die before its task.
  auto* scope = new Scope(loop_.executor());
  scope->spawn(std::move(task));
  for (int i = 0; scope->running() > 0; ++i) {
    const bool goes_on = go_on() && i < kStepsMax;
    CHECK(goes_on);
  }
  delete scope;
}

}  // namespace spillway::cache
