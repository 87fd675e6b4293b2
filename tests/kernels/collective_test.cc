#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/block_until_done.h"
#include "kernels/cpu_device.h"
#include "kernels/in_process_collective.h"
#include "runtime/prng.h"

namespace spillway::kernels {
namespace {

constexpr uint64_t kSeed = 20261130;

// CPU devices as ranks, and a buffer of each.
struct Ranks {
  Ranks(uint32_t count, uint32_t threads, size_t floats) : buffers(count) {
    for (uint32_t r = 0; r < count; ++r) {
      devices.push_back(make_cpu_device({.threads = threads, .level = "test", .pin = false}));
      pointers.push_back(devices.back().get());
      for (size_t i = 0; i < floats; ++i) {
        // Sums of these round: another order of ranks gives other bits.
        const auto bits = random_at(kSeed, r, i);
        buffers[r].push_back(static_cast<float>(bits % 1000003) * (bits % 2 == 0 ? 1e-3f : -1e3f));
      }
      data.push_back(buffers[r].data());
    }
  }
  void finish() {
    for (const auto& device : devices) {
      const auto event = device->make_event();
      device->compute().record(*event);
      block_until_done(*event);
    }
  }

  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device*> pointers;
  std::vector<std::vector<float>> buffers;
  std::vector<float*> data;
};

TEST(Collective, sums_of_all_ranks_are_taken_in_their_order) {
  for (const uint32_t count : {1u, 2u, 3u, 4u}) {
    for (const uint32_t threads : {1u, 2u}) {
      for (const size_t floats : {0u, 1u, 255u, 256u, 257u, 5000u}) {
        Ranks ranks(count, threads, floats + 1);  // one more, which nobody may touch
        const auto before = ranks.buffers;
        InProcessCollective collective(ranks.pointers);
        EXPECT_EQ(collective.ranks(), count);
        collective.all_reduce(ranks.data, floats);
        ranks.finish();
        for (size_t i = 0; i < floats; ++i) {
          float sum = before[0][i];
          for (uint32_t r = 1; r < count; ++r) sum += before[r][i];
          for (uint32_t r = 0; r < count; ++r) {
            ASSERT_EQ(std::bit_cast<uint32_t>(ranks.buffers[r][i]), std::bit_cast<uint32_t>(sum))
                << count << " ranks, rank " << r << ", float " << i << " of " << floats;
          }
        }
        for (uint32_t r = 0; r < count; ++r) EXPECT_EQ(ranks.buffers[r].back(), before[r].back());
      }
    }
  }
}

// What a rank enqueues behind a sum sees it, and changes nothing that others still add up.
TEST(Collective, many_sums_in_flight_see_what_each_rank_did_between_them) {
  constexpr uint32_t kRanks = 3, kRounds = 100;
  constexpr size_t kFloats = 700;
  Ranks ranks(kRanks, 2, kFloats);
  for (auto& buffer : ranks.buffers) std::fill(buffer.begin(), buffer.end(), 1.0f);
  InProcessCollective collective(ranks.pointers);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t r = 0; r < kRanks; ++r) {
      ranks.devices[r]->compute().launch([&buffer = ranks.buffers[r], r](Team& team) {
        if (team.index() != 0) return;
        for (float& value : buffer) value = r == 0 ? value + 1 : 0;
      });
    }
    collective.all_reduce(ranks.data, kFloats);
  }
  ranks.finish();
  for (const auto& buffer : ranks.buffers) {
    EXPECT_EQ(buffer, std::vector<float>(kFloats, 1.0f + kRounds));
  }
}

TEST(Collective, gathered_rows_lie_side_by_side) {
  constexpr size_t kRows = 5;
  const std::vector<size_t> widths = {3, 1, 16};
  Ranks ranks(3, 2, 16 * kRows);
  std::vector<RowPart> parts;
  size_t width = 0;
  for (size_t r = 0; r < widths.size(); ++r) {
    parts.push_back({.rows = ranks.data[r], .width = widths[r]});
    width += widths[r];
  }
  InProcessCollective collective(ranks.pointers);
  std::vector<float> rows(kRows * width + 1, NAN);
  collective.gather(parts, kRows, rows.data());
  ranks.finish();
  size_t at = 0;
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t r = 0; r < widths.size(); ++r) {
      for (size_t i = 0; i < widths[r]; ++i) {
        ASSERT_EQ(rows[at++], ranks.buffers[r][row * widths[r] + i]);
      }
    }
  }
  EXPECT_TRUE(std::isnan(rows.back()));
}

}  // namespace
}  // namespace spillway::kernels
