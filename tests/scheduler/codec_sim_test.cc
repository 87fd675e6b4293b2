// The engine with pages that lie encoded on its disk or in host memory: they take less room there,
// come back the same, and where they do not decode they are computed again.
#include "io/sector_buffer.h"
#include "kernels/page_codec.h"
#include "tests/scheduler/engine_world.h"

namespace spillway::scheduler {
namespace {

constexpr uint32_t kLayers = 8;
constexpr uint32_t kPageBytes = kLayers << 11;

WorldOptions options_of(uint64_t i, sim::SimFiles& files) {
  WorldOptions options;
  options.seed = i;
  options.layers = kLayers;
  options.codec = kernels::PageCodec::kPlanes;
  options.window = i % 2 == 0 ? 0 : 20 + 13 * static_cast<uint32_t>(i % 7);
  options.pages = 40 + 7 * static_cast<uint32_t>(i % 5);
  options.step_tokens = 32u << (i % 3);
  options.host_pages = i % 3 == 0 ? 30 + 20 * static_cast<uint32_t>(i % 4) : 0;
  options.staging_bytes = 16 * kPageBytes;
  options.codec_bytes = kPageBytes << (i % 5 == 0 ? 0 : 4);  // buffers run out, or do not
  options.files = &files;
  options.nvme_bytes = (1u << 20) << (i % 4);
  options.own_memory = i % 4 == 3;
  options.faults.latency_max = std::chrono::microseconds(200 << (i % 6));
  return options;
}

// cases K1, K5, K6, K12, K18
TEST(CodecSimulation, encoded_pages_give_the_answers_of_a_run_without_cache) {
  cache::CodecStats total;
  uint64_t hits = 0;
  for (uint64_t i = 1; i <= 20; ++i) {
    sim::SimFiles files;
    SCOPED_TRACE("seed " + std::to_string(i));
    World world(options_of(i, files));
    world.run_random(400);
    const cache::TiersStats& stats = world.tiers_stats();
    hits += stats.nvme.hits;
    total.encoded += stats.nvme_codec.encoded;
    total.kept += stats.nvme_codec.kept;
    total.decoded += stats.nvme_codec.decoded;
    total.bytes_before += stats.nvme_codec.bytes_before;
    total.bytes_after += stats.nvme_codec.bytes_after;
    EXPECT_EQ(stats.nvme.corrupt, 0u);
    EXPECT_EQ(stats.nvme_codec.failed, 0u);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(hits, 200u);
  EXPECT_GT(total.decoded, 200u);
  EXPECT_GT(total.kept, 100u);  // the workers were busy, or no buffer was free
  EXPECT_GT(total.encoded, total.kept);
  EXPECT_LE(total.bytes_after, total.bytes_before * 3 / 4);
}

// cases K1, K5, K6, K12: with host memory alone, and above a store that has the same codec or none.
TEST(CodecSimulation, pages_encoded_in_host_memory_give_the_answers_of_a_run_without_cache) {
  cache::CodecStats total, stored;
  uint64_t hits = 0, evictions = 0;
  for (uint64_t i = 1; i <= 24; ++i) {
    sim::SimFiles files;
    SCOPED_TRACE("seed " + std::to_string(i));
    WorldOptions options = options_of(i, files);
    options.host_codec = kernels::PageCodec::kPlanes;
    options.host_pages = 12 + 20 * static_cast<uint32_t>(i % 4);
    options.pages = 30 + 7 * static_cast<uint32_t>(i % 5);
    if (i % 3 == 0) options.files = nullptr;
    if (i % 3 == 1) options.codec = kernels::PageCodec::kIdentity;
    World world(options);
    world.run_random(400);
    const cache::TiersStats& stats = world.tiers_stats();
    hits += stats.host.hits;
    evictions += stats.host.evictions;
    total.encoded += stats.host_codec.encoded;
    total.kept += stats.host_codec.kept;
    total.decoded += stats.host_codec.decoded;
    stored.encoded += stats.nvme_codec.encoded;
    EXPECT_LE(stats.host.used_bytes, stats.host.capacity_bytes);
    EXPECT_EQ(stats.host.corrupt + stats.nvme.corrupt + stats.nvme_codec.failed, 0u);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(hits, 100u);
  EXPECT_GT(evictions, 200u);
  EXPECT_GT(total.decoded, 100u);
  EXPECT_GT(total.kept, 50u);  // the workers were busy: these take more room than the others
  EXPECT_GT(total.encoded, total.kept);
  EXPECT_GT(stored.encoded, 100u);  // as they lay
}

// case S5: a store with pages of both kinds, read by who writes either.
TEST(CodecSimulation, a_setting_that_changed_still_serves_what_the_other_one_wrote) {
  for (const auto [first, then] :
       {std::pair(kernels::PageCodec::kPlanes, kernels::PageCodec::kIdentity),
        std::pair(kernels::PageCodec::kIdentity, kernels::PageCodec::kPlanes)}) {
    sim::SimFiles files;
    WorldOptions options = options_of(2, files);
    options.nvme_bytes = 8u << 20;
    options.clear_at_end = false;
    options.codec = first;
    {
      World world(options);
      world.submit(prompt_of(200, 4));
      world.run_to_end();
      EXPECT_GT(world.tiers_stats().nvme.pages, 8u);
    }
    options.codec = then;
    World world(options);
    const auto client = world.submit(prompt_of(200, 4));
    world.run_to_end();
    EXPECT_GT(client->usage().cached_tokens, 0u);
    const bool was_encoded = first == kernels::PageCodec::kPlanes;
    EXPECT_EQ(world.tiers_stats().nvme_codec.decoded > 0, was_encoded);
  }
}

TEST(CodecSimulation, encoded_pages_leave_room_for_more) {
  uint64_t pages[2];
  for (const bool encoded : {false, true}) {
    sim::SimFiles files;
    WorldOptions options = options_of(2, files);
    options.nvme_bytes = 1u << 20;
    options.pages = 120;
    options.codec_bytes = 16 * kPageBytes;
    options.codec = encoded ? kernels::PageCodec::kPlanes : kernels::PageCodec::kIdentity;
    World world(options);
    for (uint32_t i = 0; i < 12; ++i) {
      Request request = prompt_of(200, 1);
      for (model::TokenId& token : request.prompt) token = 1 + (token + 7 * i) % 20;
      request.prompt[0] = 1 + static_cast<model::TokenId>(i);
      world.submit(request);
    }
    world.run_to_end();
    const cache::TiersStats& stats = world.tiers_stats();
    pages[encoded] = stats.nvme.pages;
    EXPECT_LE(stats.store.used_bytes, stats.store.capacity_bytes);
    EXPECT_GT(stats.store.used_bytes, stats.store.capacity_bytes * 3 / 4);
  }
  EXPECT_GT(pages[1] * 10, pages[0] * 12);
}

// Opens the store that a world left and puts other bytes in place of each encoded page, with a
// checksum that is theirs: a codec must refuse what verifies.
class Forger {
 public:
  explicit Forger(sim::SimFiles& files)
      : device_(1), parker_(clock_, device_), loop_(clock_, parker_), disk_(loop_, files, 1) {
    parker_.disk = &disk_;
  }
  uint64_t run(uint64_t bytes) {
    loop_.run(forge(bytes));
    return forged_;
  }

 private:
  struct Page {
    io::StoredPage stored;
    std::string space;
    std::vector<int32_t> tokens;
  };

  Task<> forge(uint64_t bytes) {
    io::BlockStoreOptions options;
    options.directory = "store";
    options.bytes = bytes;
    options.slot_bytes = {kPageBytes};
    options.smaller_slots = true;
    auto opened = co_await io::BlockStore::open(std::move(options), loop_, disk_);
    EXPECT_TRUE(opened.has_value());
    io::BlockStore& store = **opened;
    std::vector<Page> pages;
    store.for_each([&](const io::StoredPage& page) {
      pages.push_back(
          {page, std::string(page.name.space), {page.name.tokens.begin(), page.name.tokens.end()}});
    });
    Prng rng(bytes);
    for (Page& page : pages) {
      if (page.stored.codec == 0) continue;
      const io::SectorBuffer buffer(page.stored.stored_bytes);
      const Result<> read = co_await store.get(page.stored.slot, page.stored.generation,
                                               buffer.bytes(), buffer.owner(), never_);
      EXPECT_TRUE(read.has_value());
      store.erase(page.stored.slot, page.stored.generation);
      io::PageName name = page.stored.name;
      name.space = page.space;
      name.tokens = page.tokens;
      io::PagePayload payload;
      payload.bytes = buffer.bytes();
      payload.codec = page.stored.codec;
      payload.encoded_bytes = page.stored.encoded_bytes;
      switch (forged_ % 4) {
        case 0:  // the pieces' sizes
          buffer.bytes()[rng.below(4)] = static_cast<std::byte>(rng.next());
          buffer.bytes()[3] = std::byte{0x7f};
          break;
        case 1:
          payload.encoded_bytes /= 2;
          break;
        case 2:
          for (std::byte& byte : buffer.bytes()) byte = static_cast<std::byte>(rng.next());
          break;
        default:  // a codec that there is not
          payload.codec = 77;
      }
      const auto put = co_await store.put(name, payload, buffer.owner(), never_);
      EXPECT_TRUE(put.has_value());
      ++forged_;
    }
    co_await store.close();
    co_await disk_.drain();
  }

  SimulatedClock clock_;
  sim::SimDevice device_;
  sim::SimParker parker_;
  EngineLoop loop_;
  sim::SimDisk disk_;
  StopFlag never_;
  uint64_t forged_ = 0;
};

TEST(CodecSimulation, bytes_that_verify_and_do_not_decode_are_computed_again) {
  sim::SimFiles files;
  WorldOptions options = options_of(2, files);
  options.nvme_bytes = 8u << 20;
  options.codec_bytes = 8 * kPageBytes;
  options.clear_at_end = false;
  {
    World world(options);
    world.submit(prompt_of(200, 4));
    world.run_to_end();
  }
  EXPECT_GT(Forger(files).run(options.nvme_bytes), 6u);
  options.clear_at_end = true;
  World world(options);
  world.submit(prompt_of(200, 4));
  world.run_to_end();  // and every answer is right
  EXPECT_GT(world.tiers_stats().nvme_codec.failed, 0u);
  EXPECT_EQ(world.tiers_stats().nvme_codec.failed, world.tiers_stats().nvme.corrupt);
}

}  // namespace
}  // namespace spillway::scheduler
