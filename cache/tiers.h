// The tiers below the device: pages go down behind (write-behind), and come up ahead of need.
//
//   device pool --stream copy--> host pool (or a buffer) --ring write--> block store
//   device pool <--stream copy-- host pool
//   device pool <--ring read, straight into the page's memory-- block store
//
// With a codec a page is encoded before the ring write, and read into a buffer and decoded from it
// into the page's memory, by workers (page_transcoder.h). Host memory may have a codec too
// (tier_host.cc); where it is the store's, pages go to the store as they lie there.
//
// Down: a path is kept when its request or turn ends, or when it is preempted. Its pages are pinned
// in batches of kBatchBytes for the time of a stream copy only, into host pages or a buffer from
// which the disk takes them, so that a slow disk holds nothing back; what is evicted before its
// turn is lost, which costs a recompute and nothing else. Up: begin_load() plans, from measured
// rates, which part of a path to load while its sequence computes the rest (load_plan.h), and at
// most load_bytes_max are in flight at once, of a slow tier 2 MiB.
//
// Sketch, SmolLM2 on NVMe: 360 KiB a page of 16 tokens; at 2 GB/s 180 us a page, 11 us a token,
// where prefill takes 300 us a token: loading wins by 25x. At 50 MB/s 460 us a token: both together
// take 0.6 of either alone.
//
// On NVMe pages form chains: a page of full attention can be found after a restart only through its
// parent's, and a window's page only beside its own node's. So none is written to which stored
// pages do not lead all the way, and the last of a chain is the first to be evicted
// (tier_chain.cc). A model of windows alone has no chains, and nothing of it is found after a
// restart.
//
// A tier may lose pages; it never returns wrong bytes, and no request fails because of it: every
// failure is a page to compute, and a counter.
//
// Scrub: while nobody wants anything, what lies on NVMe is read and verified page by page, so that
// what has rotted is found before somebody counts on it (tier_scrub.cc).
//
// Owner and thread: the engine's. Bounds: kPathsMax paths wait to be written, further ones are
// dropped and counted.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/copies_up.h"
#include "cache/eviction_policy.h"
#include "cache/kv_cache.h"
#include "cache/load.h"
#include "cache/load_plan.h"
#include "cache/page_directory.h"
#include "cache/page_transcoder.h"
#include "cache/staging.h"
#include "cache/tier_rates.h"
#include "io/block_store.h"
#include "kernels/device.h"
#include "runtime/channel.h"
#include "runtime/engine_loop.h"
#include "runtime/latency_histogram.h"
#include "runtime/scope.h"
#include "runtime/semaphore.h"

namespace spillway::cache {

enum class WritePolicy : uint8_t {
  kAuto,   // everything while there is room, then as kReuse
  kReuse,  // paths that were used twice, and those of sessions
  kOff,    // nothing; what the store holds is still read
};

struct HostGroup {
  std::byte* memory = nullptr;  // capacity * page_bytes of the group; outlives the tiers
  uint32_t capacity = 0;        // pages as they are
};

// Whether what comes from NVMe comes by bands of layers, so that its suffix is computed meanwhile.
enum class BandLoads : uint8_t {
  kAuto,    // where the rates say that it saves time
  kOff,     // page by page
  kAlways,  // wherever it can be, steps included: for tests
};

struct TiersOptions {
  std::vector<HostGroup> host;  // (group); empty: no host tier
  WritePolicy write = WritePolicy::kAuto;
  bool verify_all = false;  // check pages that come from host memory as well
  bool load_all = false;    // tests: nothing is computed that is held, however slow its tier is
  // Buffers for copies where there is no host tier, or one with a codec: at least one page, 4 KiB
  // aligned; outlives us.
  std::span<std::byte> staging;
  // What pages become on NVMe. With one that is not lossless the cache's fingerprint must say so.
  kernels::PageCodec nvme_codec = kernels::PageCodec::kIdentity;
  // Buffers for encoded pages on their way to NVMe, if any tier has a codec, and up: each a page at
  // least, 4 KiB aligned; they outlive us. Without those for the way up no encoded page is served.
  std::span<std::byte> encode_buffers, decode_buffers;
  // The same of host memory, and the buffers for pages on their way there and up, if it has one.
  kernels::PageCodec host_codec = kernels::PageCodec::kIdentity;
  std::span<std::byte> host_encode_buffers, host_decode_buffers;
  // Where the host does not reach the device's memory: what a disk reads or a worker decodes lands
  // here, and a stream brings it on. Each a page at least, 4 KiB aligned; they outlive us.
  std::span<std::byte> landing;
  uint64_t load_bytes_max = 8u << 20;  // in flight from each tier towards the device
  double guess_bytes_per_s = 1e9;      // of a tier, until it was measured
  BandLoads bands = BandLoads::kAuto;
  uint32_t rows_under_load_max = 512;  // of a step under a load: they pass the layers together
  // Between two pages that are scrubbed, at least, and between two rounds through the store. 0:
  // none is. (Not by default: with it a loop always has a timer, so a simulation never idles.)
  std::chrono::nanoseconds scrub_pause{0};
  std::chrono::nanoseconds scrub_rest = std::chrono::hours(1);
};

struct TierStats {
  uint64_t capacity_bytes = 0, used_bytes = 0;
  uint64_t pages = 0;              // held
  uint64_t hits = 0;               // pages that sequences took from here
  uint64_t reads = 0, writes = 0;  // pages moved up, and down
  uint64_t read_bytes = 0, written_bytes = 0;
  uint64_t evictions = 0, errors = 0, corrupt = 0;
  uint64_t skipped = 0;    // pages not written: policy, no room, or the tier set aside
  double bytes_per_s = 0;  // towards the device, as measured
  bool measured = false;
  bool set_aside = false;         // reads are not tried, but for a probe now and then
  bool writes_set_aside = false;  // the same of writes
  uint64_t times_set_aside = 0;   // reads and writes
  // Of a page, up and down; to NVMe until it would survive a crash. Reads that were called off and
  // writes that failed are not in.
  LatencyHistogram read_time, write_time;
};

struct CodecStats {                            // of one tier
  uint64_t encoded = 0;                        // pages that were written smaller than they are
  uint64_t bytes_before = 0, bytes_after = 0;  // of these, as they are and as stored
  uint64_t kept = 0;  // pages written as they are: not worth it, or no room
  uint64_t decoded = 0;
  uint64_t failed = 0;  // pages that verified and did not decode; none was served
};

struct TiersStats {
  TierStats host, nvme;
  CodecStats host_codec, nvme_codec;
  uint64_t directory_nodes = 0;
  uint64_t other_pages = 0;  // in the store, of other models, KV formats or page sizes
  uint64_t paths_waiting = 0, paths_dropped = 0;
  uint64_t scrubbed_pages = 0;           // read to see whether they verify
  uint64_t scrub_dropped_pages = 0;      // of these, dropped since they did not
  uint32_t loads = 0;                    // running
  uint64_t steps_under_load = 0;         // that computed while layers of their prefix still came
  uint64_t steps_in_vain = 0;            // of these, thrown away: a layer failed or was late
  double compute_seconds_per_token = 0;  // at position 0
  io::BlockStoreStats store;
};

// A path to keep below the device: what it holds is copied, so that it may wait.
struct KeptPath {
  PromptKeys keys;
  std::vector<TokenId> tokens;  // that `keys` was made for
  bool session = false;         // an open conversation
  // Of a sequence that will go on: it is written where only what is used again is, and counts as no
  // use of its own.
  bool running = false;
  uint64_t hold = 0;  // set by Tiers
};

class Tiers {
 public:
  using MakePolicy = std::function<std::unique_ptr<EvictionPolicy>(uint32_t capacity_pages)>;
  struct Parts {
    EngineLoop& loop;
    KvCache& cache;
    kernels::Device& device;
    io::BlockStore* store = nullptr;  // null: no NVMe tier
    RunWork run_work{};               // for codecs; needed where there are buffers for them
  };
  // Lists what the store holds. All parts outlive the tiers; the store is closed by who owns it,
  // after close().
  Tiers(TiersOptions options, Parts parts, const MakePolicy& make_policy);
  ~Tiers();  // REQUIRES: close() has ended
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  // Called, on the loop, whenever a load made progress or a transfer gave its pages back.
  void set_on_progress(std::function<void()> on_progress) { on_progress_ = std::move(on_progress); }

  // Whether nobody wants anything of the engine: only then pages are scrubbed. Without it: always.
  void set_is_idle(std::function<bool()> is_idle) { is_idle_ = std::move(is_idle); }

  // Tokens of the prefix that some tier holds, `device_tokens` of them on the device; gaps count as
  // held. A multiple of page_tokens, less than the prompt. About 100 ns a page.
  uint32_t match_length(const PromptKeys& keys, std::span<const TokenId> tokens,
                        uint32_t device_tokens) const;

  // Begins to bring up what follows the sequence's end on its path. Null: nothing to load there,
  // or computing it is quicker. REQUIRES: cache.can_adopt(sequence).
  std::shared_ptr<Load> begin_load(const PromptKeys& keys, std::span<const TokenId> tokens,
                                   const Sequence& sequence, double compute_price);
  // The same for a sequence that computes nothing, ahead of need: from the front, as far as pages
  // are free or held by nothing, and only while no other load has anything to read.
  std::shared_ptr<Load> begin_prefetch(const PromptKeys& keys, std::span<const TokenId> tokens,
                                       const Sequence& sequence);
  // Lets the sequence take the pages that have arrived after its end, if any. True: it took some.
  // REQUIRES: no enqueued step names the sequence.
  bool adopt(Load& load, Sequence& sequence, std::span<const TokenId> tokens);
  // The tokens up to which the sequence should compute now, given that `size` are done: at most the
  // page at which it meets the load. Equal to size: it waits. Gives up planned pages before that.
  uint32_t compute_until(Load& load, uint32_t size, double compute_price);
  // Whether the sequence, which waits for the load, should compute `rows` tokens behind the load's
  // end now, while later layers still come: in a step of its own, while nobody else computes.
  bool may_run_under(const Load& load, const Sequence& sequence, uint32_t rows) const;
  // How many of the tokens behind a load such a step takes.
  uint32_t rows_under(uint32_t tokens) const {
    return std::min(tokens, options_.rows_under_load_max);
  }
  // Pages for that step, whose sequence is not touched until it has ended. Null: no room.
  std::shared_ptr<StepUnderLoad> begin_step_under(std::shared_ptr<Load> load,
                                                  const Sequence& sequence, uint32_t rows);
  // That step has ended. True: the sequence has the load's pages, and those for the step's tokens,
  // to commit. False: a layer failed or was late, and the step never was.
  bool end_step_under(Load& load, Sequence& sequence, std::span<const TokenId> tokens);
  // The sequence needs no more of it (it ended, was preempted, or has passed it).
  void give_up(std::shared_ptr<Load> load);
  bool finished(const Load& load) const;  // nothing is left to come

  // Queues the path to be written behind.
  void keep(KeptPath path);
  // Pages of sequences that have ended stay on the device until they are written, or for kHoldMax:
  // who comes next waits that long rather than take what would have to be computed again. Whoever
  // cannot wait ends it.
  bool holds_pages() const { return !holds_.empty(); }
  void let_go_of_holds();
  ComputeRate& compute_rate() { return compute_rate_; }
  // Seconds to bring this many pages of each group up, at the measured rates; nothing while no tier
  // takes pages.
  std::optional<double> seconds_to_load(const PageCounts& pages) const;

  // The device has ended (Device::failure()), and with it its pages: gives up the loads, drops what
  // waits to be written. Transfers in flight end as failed ones do, each telling progress; what the
  // lower tiers hold stays. Nothing is to be kept or loaded until another is in its place.
  void device_lost();
  // Drops every page of the lower tiers that no transfer names. Returns how many.
  uint64_t clear();
  // Tells progress once more in a few milliseconds: for who waits for pages that transfers hold.
  void wake_soon();

  // Gives up the loads, ends the writes in flight, drops the queued ones.
  Task<> close();
  TiersStats stats() const;
  // Every invariant of directory and host pool by a full walk. Empty, or what is wrong.
  std::string check_integrity() const;

 private:
  static constexpr uint64_t kBatchBytes = 4u << 20;
  static constexpr std::chrono::milliseconds kHoldMax{250};
  struct Hold {
    uint64_t id = 0;
    std::optional<PinnedPath> full, windows;
  };
  static constexpr uint32_t kPathsMax = 256;
  static constexpr size_t kSeenMax = 1u << 16;

  struct Range {  // of a path's pages, in some groups
    uint32_t begin, end;
    uint32_t first_group, end_group;
  };
  struct Copy {  // of a page, on its way down
    DirectoryNode* node;
    uint32_t group;
    std::byte* data;              // where it is copied, or to be written from; null: host units
    std::shared_ptr<void> owner;  // of `data`, if it is a buffer; keeps a host page where it is
    bool reused = false;
  };
  struct Put {
    DirectoryNode* node;
    uint32_t group;
    bool reused;      // it may take the place of others
    uint64_t clears;  // when it began
  };
  struct Stored {             // what goes to the store in a page's place
    io::PagePayload payload;  // empty: it cannot be had now
    std::shared_ptr<void> owner;
    bool corrupt = false;  // and never will be
  };
  // Keeps a host page where it is while somebody reads it, also when nobody waits any more.
  class HostPin {
   public:
    HostPin(Tiers& tiers, DirectoryNode& node, uint32_t group);
    ~HostPin();
    HostPin(const HostPin&) = delete;
    HostPin& operator=(const HostPin&) = delete;

   private:
    Tiers& tiers_;
    DirectoryNode& node_;  // counted in its transfers
    const uint32_t group_;
  };

  // tiers.cc
  bool has_host() const { return !host_pools_.empty(); }
  void list_stored();
  void make_transcoders();
  bool is_readable(const io::StoredPage& page) const;
  bool evict_other();
  void list(TierEntry& entry, Tier tier);
  void unlist(TierEntry& entry, Tier tier);
  void leave(TierEntry& entry, Tier tier);
  EvictionPolicy& policy(Tier tier, uint32_t group) {
    return *(tier == Tier::kHost ? host_policies_ : nvme_policies_)[group];
  }
  void drop_nvme(DirectoryNode& node, uint32_t group, bool erase);
  bool evict_one(Tier tier, uint32_t group);
  bool is_chained() const { return !parts_.cache.is_window(0); }
  void admit(TierEntry& entry, Tier tier);
  void begin_move(DirectoryNode& node, uint32_t group, Move move);
  void end_move(DirectoryNode& node, uint32_t group, bool arrived);
  void list_idle(DirectoryNode& node, uint32_t group);
  void touch(const std::vector<DirectoryNode*>& path, const KeptPath& kept);
  void hold(KeptPath& path);
  void end_hold(uint64_t id);
  Task<> expire_hold(uint64_t id);
  void progress();
  uint32_t full_groups() const;  // those without a window, which come first
  static uint64_t checksum_of(std::span<const std::byte> page);

  // tier_writer.cc
  Task<> write_behind();
  Task<> write_path(KeptPath path);
  Task<> write_windows(const KeptPath& path, const std::vector<DirectoryNode*>& nodes,
                       uint32_t reused);
  size_t pages_in_buffers() const;
  Task<> write_batch(PinnedPath pinned, std::vector<DirectoryNode*> nodes, Range range,
                     uint32_t reused);
  void start_staged_copies(const PinnedPath& pinned, const std::vector<DirectoryNode*>& nodes,
                           const Range& range, uint32_t reused, std::vector<Copy>& copies);
  std::vector<Copy> begin_host_puts(const std::vector<DirectoryNode*>& nodes, const Range& range,
                                    uint32_t reused);
  void give_up_copies(const std::vector<Copy>& copies);
  Task<> put_page(Put put, std::byte* data, std::shared_ptr<void> owner);
  Task<Stored> encode(uint32_t group, std::byte* data, std::shared_ptr<void> owner);
  void put_failed(ErrorCode code);
  bool makes_room(const DirectoryNode& node, uint32_t group, bool reused, uint64_t begun);
  bool frees_slot(uint32_t group, uint32_t bytes, uint64_t begun, bool may_evict);
  bool any_to_write(const std::vector<DirectoryNode*>& nodes, const Range& range) const;
  uint32_t reused_pages(const KeptPath& path);
  void grow_path(const KeptPath& path, std::vector<DirectoryNode*>& nodes, uint32_t end);
  void release_nodes(const std::vector<DirectoryNode*>& nodes);

  // tier_host.cc
  bool host_is_encoded() const { return host_encoder_ != nullptr; }
  bool may_drop_host(const DirectoryNode& node, uint32_t group) const;
  void drop_host(DirectoryNode& node, uint32_t group);
  HostUnits take_host_units(uint32_t group, size_t bytes);
  void start_host_copies(const PinnedPath& pinned, const std::vector<DirectoryNode*>& nodes,
                         const Range& range, std::vector<Copy>& copies);
  Task<> finish_host_copies(std::vector<Copy> copies, Clock::TimePoint began, uint64_t clears);
  Task<> encode_to_host(Copy copy, Clock::TimePoint began, uint64_t clears);
  void entered_host(DirectoryNode& node, uint32_t group, Clock::TimePoint began, uint64_t clears);
  PageTranscoder::Fill gather(const LowerPage& page, uint32_t group) const;
  Task<bool> copy_from_host(DirectoryNode* node, uint32_t group, std::shared_ptr<FillingPage> page);
  Task<Stored> lift_from_host(DirectoryNode* node, uint32_t group, std::shared_ptr<void> pin);

  // tier_chain.cc
  bool way_is_whole(DirectoryNode& of, uint32_t group);
  bool may_evict_from_nvme(const DirectoryNode& node, uint32_t group) const;
  void entered_nvme(DirectoryNode& node, uint32_t group);
  void left_nvme(DirectoryNode& node, uint32_t group);
  bool is_missed(const DirectoryNode& node, uint32_t group) const;
  Task<> drop_unreachable(const std::vector<Copy>& written);

  // tier_load.cc
  uint32_t loadable_end(const std::vector<DirectoryNode*>& nodes, uint32_t begin, bool nvme) const;
  bool held_below(const DirectoryNode& node, uint32_t group, bool nvme) const;
  bool needs(const Load& load, uint32_t position, uint32_t group) const;
  bool reserve_pages(Load& load, uint32_t position);
  std::shared_ptr<Load> plan_load(const PromptKeys& keys, std::span<const TokenId> tokens,
                                  const Sequence& sequence);
  void start_load(const std::shared_ptr<Load>& load, bool by_bands);
  bool others_load() const;
  bool waits_for_move(const Load::Slot& slot) const;
  void pass(Load& load, uint32_t position);
  LoadQuestion question_of(const Load& load, uint32_t begin) const;
  Meeting meet(const Load& load, uint32_t from, uint32_t begin, double compute_price) const;
  Task<> run_load(std::shared_ptr<Load> load);
  void drop_slot(Load& load, Load::Slot& slot);
  void let_go(Load::Slot& slot);
  Task<> watch(std::shared_ptr<Load> load);
  Task<> wake_later();

  // tier_fetch.cc
  struct Fetched {
    bool good = false;
    bool tried = false;      // else it was called off before all of it was asked for
    Clock::Duration took{};  // of its reads or copies, without what it waited for room
  };
  Task<bool> start_fetches(std::shared_ptr<Load> load, uint32_t position);
  void start_moves(const std::shared_ptr<Load>& load, uint32_t position, Permit& host_room,
                   Permit& nvme_room);
  Task<> fetch(std::shared_ptr<Load> load, uint32_t position, uint32_t group,
               std::shared_ptr<HostPin> pin, Permit permit);
  Task<Permit> room_for(std::shared_ptr<Load> load, Semaphore* turn, Semaphore* room,
                        uint64_t bytes);
  Clock::TimePoint transfer_began(Load& load, Tier tier, uint64_t bytes);
  Clock::Duration transfer_ended(Load& load, Tier tier, Clock::TimePoint began, uint64_t bytes,
                                 bool whole);
  void limit_in_flight(Tier tier);
  Task<Fetched> fetch_from_host(std::shared_ptr<Load> load, uint32_t position, uint32_t group,
                                Permit permit);
  Task<Fetched> fetch_from_nvme(std::shared_ptr<Load> load, uint32_t position, uint32_t group,
                                Permit permit);
  Task<bool> fetch_encoded(std::shared_ptr<Load> load, DirectoryNode* node, uint32_t group,
                           std::shared_ptr<FillingPage> page);
  struct Landing {  // where a read goes
    std::span<std::byte> bytes;
    std::shared_ptr<void> owner;
  };
  Task<Landing> landing_for(std::shared_ptr<Load> load, uint32_t position, uint32_t group);
  Task<bool> bring_on(std::byte* to, std::span<const std::byte> from);
  Task<Result<>> decode_onto(PageTranscoder& decoder, kernels::PageCodec codec,
                             std::shared_ptr<PageTranscoder::Buffer> from, uint32_t encoded_bytes,
                             std::shared_ptr<FillingPage> page, uint32_t group,
                             PageTranscoder::Fill fill = {});

  // tier_bands.cc
  bool worth_bands(const Load& load, double compute_price) const;
  bool keeps_to_bands(const Load& load, uint32_t begin, double compute_price) const;
  double seconds_by_bands(const Load& load, uint32_t begin, double at_rate) const;
  void read_took(Clock::Duration time);
  BandsQuestion bands_question(const Load& load, uint32_t begin, double compute_price) const;
  static bool all_come(const Load& load, uint32_t begin);
  void start_bands(const std::shared_ptr<Load>& load);
  void arrived(Load& load, Load::Slot& slot, uint32_t group, uint32_t layers);
  void left(Load& load, Load::Slot& slot);
  double load_seconds_left(const Load& load, uint32_t begin) const;
  double others_seconds_left(const Load& load) const;
  double compute_seconds(uint32_t position, uint32_t rows) const;
  void abandon_step(Load& load);
  Task<> watch_step(std::shared_ptr<Load> load, std::shared_ptr<StepUnderLoad> step,
                    Clock::Duration patience);

  // tier_probe.cc
  void judge_read(const Result<>& read);
  Task<> probe_reads();

  // tier_scrub.cc
  Task<> scrub();
  bool may_scrub() const;
  void take_scrubbed(const io::ScrubbedPage& page);
  void forget_lost(const io::ScrubbedPage& page);

  const TiersOptions options_;
  Parts parts_;
  CopiesUp copies_up_{parts_.device};  // where the device's memory is its own
  std::function<void()> on_progress_ = [] {};
  std::function<bool()> is_idle_ = [] { return true; };
  struct OtherPage {
    io::SlotId slot{};
    uint64_t generation = 0;
  };
  // Pages of other models, KV formats or page sizes: never served (case S13), kept for who can use
  // them, and the first to go when room is wanted: by slot, from the last.
  std::vector<OtherPage> others_;
  PageDirectory directory_;
  std::vector<HostPool> host_pools_;                            // (group)
  std::vector<std::unique_ptr<EvictionPolicy>> host_policies_;  // (group)
  std::vector<std::unique_ptr<EvictionPolicy>> nvme_policies_;  // (group)
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<PageTranscoder> encoder_, decoder_;            // of the store
  std::unique_ptr<PageTranscoder> host_encoder_, host_decoder_;  // null: host pages are as they are
  std::unique_ptr<PageTranscoder> landing_;  // its buffers alone; null: the device's memory is ours
  std::vector<uint32_t> likely_bytes_;  // (group) that a page takes in the store: as the last one
  Semaphore host_room_, nvme_room_;     // bytes in flight towards the device
  std::deque<KeptPath> queue_;          // at most kPathsMax
  std::vector<Hold> holds_;
  uint64_t last_hold_ = 0;
  Channel<bool> queued_;  // wakes the writer
  bool writing_ = false;  // it has a path
  bool waking_ = false;
  bool probing_reads_ = false;
  uint64_t tick_ = 0;
  uint64_t clears_ = 0;
  uint64_t losses_ = 1;  // of pages with others after them; counts from 1 (DirectoryNode)
  std::unordered_map<uint64_t, uint32_t>
      seen_;  // page key -> times kept; a bounded memory of reuse
  TransferRate host_rate_, nvme_rate_;
  ComputeRate compute_rate_;
  Breaker read_breaker_, write_breaker_;  // of the store
  TierStats host_, nvme_;
  CodecStats host_codec_, codec_;  // of host memory, of the store
  uint64_t paths_dropped_ = 0;
  uint64_t steps_under_load_ = 0, steps_in_vain_ = 0;
  uint64_t scrubbed_pages_ = 0, scrub_dropped_pages_ = 0;
  double nvme_latency_s_ = 0;                 // the least that a read takes
  std::vector<std::shared_ptr<Load>> loads_;  // not given up, and not finished when last looked at
  Scope scope_;                               // last: its tasks use all of the above
};

}  // namespace spillway::cache
