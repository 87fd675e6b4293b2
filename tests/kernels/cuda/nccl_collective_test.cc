// Collectives over the simulated NCCL: the sums of the CPU's collective, and failures that leave
// nobody waiting.
#include "kernels/cuda/nccl_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/rank_operators.h"
#include "runtime/prng.h"
#include "tests/emulator/simulated_nccl.h"
#include "tests/kernels/cuda/cuda_machine.h"

namespace spillway::kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr size_t kFloatsMax = 600;

// Ranks, each a simulated GPU with a buffer of kFloatsMax and one more, and the same at the host.
struct Ranks {
  Ranks(uint32_t count, uint64_t seed_of_it)
      : machine({.seed = seed_of_it, .devices = int(count)}) {
    for (uint32_t r = 0; r < count; ++r) {
      devices.push_back(*make_cuda_device({.index = static_cast<int>(r)}));
      pointers.push_back(devices[r].get());
      there.push_back(*devices[r]->allocate((kFloatsMax + 1) * sizeof(float)));
      host.push_back(*devices[r]->allocate_host((kFloatsMax + 1) * sizeof(float)));
      buffers.push_back(reinterpret_cast<float*>(there[r].data));
      before.emplace_back();
      for (size_t i = 0; i <= kFloatsMax; ++i) {
        // Sums of these round: another order of ranks gives other bits.
        const auto bits = random_at(seed_of_it, r, i);
        before[r].push_back(static_cast<float>(bits % 1000003) * (bits % 2 == 0 ? 1e-3f : -1e3f));
      }
      std::memcpy(host[r].data, before[r].data(), host[r].bytes);
      devices[r]->compute().copy(buffers[r], host[r].data, host[r].bytes);
    }
  }
  Result<std::unique_ptr<Collective>> make() {
    return make_nccl_collective(
        nccl.api(), pointers,
        {.sum_floats_max = kFloatsMax, .gather_floats_max = kFloatsMax * devices.size()});
  }
  void await_all() {
    for (const auto& device : devices) {
      const auto event = device->make_event();
      device->compute().record(*event);
      machine.await(*event);
    }
  }
  void bring_back() {
    for (size_t r = 0; r < devices.size(); ++r) {
      devices[r]->compute().copy(host[r].data, buffers[r], host[r].bytes);
    }
    await_all();
  }
  float at(size_t rank, size_t i) const {
    return reinterpret_cast<const float*>(host[rank].data)[i];
  }
  float sum_before(size_t i) const {
    float sum = before[0][i];
    for (size_t r = 1; r < before.size(); ++r) sum += before[r][i];
    return sum;
  }
  // All have ended, for that reason, and nothing waits for anything.
  void expect_ended(const std::string& why) {
    for (const auto& device : devices) ASSERT_NE(device->failure(), nullptr);
    EXPECT_THAT(devices[0]->failure()->message, HasSubstr(why));
    EXPECT_EQ(nccl.living(), 0u);
    EXPECT_EQ(nccl.aborted(), devices.size());
  }

  CudaMachine machine;
  emulator::SimulatedNccl nccl{machine.cuda};
  std::vector<std::unique_ptr<CudaDevice>> devices;
  std::vector<CudaDevice*> pointers;
  std::vector<DeviceMemory> there, host;
  std::vector<float*> buffers;
  std::vector<std::vector<float>> before;
};

TEST(NcclCollective, sums_of_all_ranks_are_taken_in_their_order) {
  const uint64_t seed = test_seed();
  for (const uint32_t count : {2u, 3u, 4u, kRanksMax}) {
    for (const size_t floats : {size_t{0}, size_t{1}, size_t{257}, kFloatsMax}) {
      Ranks ranks(count, seed + floats);
      const auto collective = ranks.make();
      ASSERT_TRUE(collective);
      EXPECT_EQ((*collective)->ranks(), count);
      ranks.machine.cuda.forbid_waiting(true);
      (*collective)->all_reduce(ranks.buffers, floats);
      ranks.bring_back();
      ranks.machine.cuda.forbid_waiting(false);
      for (size_t r = 0; r < count; ++r) {
        for (size_t i = 0; i <= kFloatsMax; ++i) {
          const float expected = i < floats ? ranks.sum_before(i) : ranks.before[r][i];
          ASSERT_EQ(std::memcmp(&expected, reinterpret_cast<float*>(ranks.host[r].data) + i,
                                sizeof(float)),
                    0)
              << count << " ranks, rank " << r << ", float " << i << " of " << floats;
        }
      }
    }
  }
}

// What a rank enqueues behind a sum sees it, and changes nothing that others still add up.
TEST(NcclCollective, many_sums_in_flight_see_what_each_rank_did_between_them) {
  constexpr uint32_t kRounds = 10;
  const uint64_t seed = test_seed();
  Ranks ranks(3, seed);
  const auto collective = ranks.make();
  ASSERT_TRUE(collective);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t r = 0; r < 3; ++r) {
      CudaDevice& device = *ranks.devices[r];
      device.compute().launch([&](Team&) {
        device.take_error_of("kernel", ranks.machine.cuda.launch(
                                           device.native(device.compute()), [&ranks, r, round] {
                                             for (size_t i = 0; i < kFloatsMax; ++i) {
                                               float& value = ranks.buffers[r][i];
                                               value = r == 0 ? (round == 0 ? 1 : value) + 1 : 0;
                                             }
                                           }));
      });
    }
    (*collective)->all_reduce(ranks.buffers, kFloatsMax);
  }
  ranks.bring_back();
  for (size_t r = 0; r < 3; ++r) {
    for (size_t i = 0; i < kFloatsMax; ++i) ASSERT_EQ(ranks.at(r, i), 1.0f + kRounds);
  }
}

TEST(NcclCollective, gathered_rows_lie_side_by_side) {
  constexpr size_t kRows = 5;
  const std::vector<size_t> widths = {3, 1, 16};
  Ranks ranks(3, test_seed());
  const auto collective = ranks.make();
  ASSERT_TRUE(collective);
  std::vector<RowPart> parts;
  for (size_t r = 0; r < widths.size(); ++r) {
    parts.push_back({.rows = ranks.buffers[r], .width = widths[r]});
  }
  float* const to = ranks.buffers[0] + 100;
  (*collective)->gather(parts, kRows, to);
  ranks.bring_back();
  size_t at = 100;
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t r = 0; r < widths.size(); ++r) {
      for (size_t i = 0; i < widths[r]; ++i) {
        ASSERT_EQ(ranks.at(0, at++), ranks.before[r][row * widths[r] + i]);
      }
    }
  }
  EXPECT_EQ(ranks.at(0, at), ranks.before[0][at]);
}

// Each call of NCCL's fails once; what was begun ends, and so does every device.
TEST(NcclCollective, a_call_that_fails_ends_all_devices_and_leaves_nobody_waiting) {
  const uint64_t seed = test_seed();
  for (const char* const call : {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    for (const uint32_t after : {0u, 1u}) {
      SCOPED_TRACE(std::string(call) + " after " + std::to_string(after));
      Ranks ranks(2, seed);
      const auto collective = ranks.make();
      ASSERT_TRUE(collective);
      ranks.nccl.fail_call(call, NcclResult::kSystemError, after);
      for (int i = 0; i < 3; ++i) (*collective)->all_reduce(ranks.buffers, kFloatsMax);
      ranks.await_all();
      ranks.expect_ended("unhandled system error");
      (*collective)->gather({{{ranks.buffers[0], 1}, {ranks.buffers[1], 1}}}, 1, ranks.buffers[0]);
    }
  }
}

TEST(NcclCollective, a_peer_that_never_answers_ends_all_devices_once_nccl_says_so) {
  Ranks ranks(4, test_seed());
  const auto collective = ranks.make();
  ASSERT_TRUE(collective);
  ranks.nccl.cut_links();
  (*collective)->all_reduce(ranks.buffers, kFloatsMax);
  ranks.machine.cuda.run_all();
  for (const auto& device : ranks.devices) ASSERT_EQ(device->failure(), nullptr);
  ranks.nccl.set_async_error(NcclResult::kSystemError);
  ranks.await_all();
  ranks.expect_ended("NCCL, in the background: unhandled system error");
}

// A device that fails while others wait for its rows, and for gates of theirs, takes them along.
TEST(NcclCollective, a_device_that_fails_lets_its_peers_go) {
  Ranks ranks(3, test_seed());
  const auto collective = ranks.make();
  ASSERT_TRUE(collective);
  const auto gate = ranks.devices[2]->make_gate();
  ranks.devices[2]->compute().wait(*gate, 1);
  (*collective)->all_reduce(ranks.buffers, kFloatsMax);
  ranks.machine.cuda.run_all();
  ranks.devices[1]->take_error_of("matmul", cudaErrorInvalidValue);
  ranks.await_all();
  ranks.expect_ended("another GPU of its group has failed");
  EXPECT_THAT(ranks.devices[1]->failure()->message, HasSubstr("matmul"));
  EXPECT_EQ(ranks.machine.cuda.take_misuse().size(), 0u);
}

TEST(NcclCollective, ranks_that_cannot_be_connected_are_no_collective) {
  const uint64_t seed = test_seed();
  for (const char* const call : {"ncclCommInitAll", "ncclGroupEnd"}) {
    Ranks ranks(2, seed);
    ranks.await_all();
    ranks.nccl.fail_call(call, NcclResult::kSystemError);
    const auto collective = ranks.make();
    ASSERT_FALSE(collective);
    EXPECT_EQ(collective.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(collective.error().message, HasSubstr("unhandled system error"));
    EXPECT_EQ(ranks.nccl.living(), 0u);
  }
}

TEST(NcclCollective, communicators_and_memory_go_with_it) {
  Ranks ranks(2, test_seed());
  ranks.await_all();
  const std::string before = ranks.machine.cuda.left();
  {
    const auto collective = ranks.make();
    ASSERT_TRUE(collective);
    EXPECT_EQ(ranks.nccl.living(), 2u);
    (*collective)->all_reduce(ranks.buffers, kFloatsMax);
    ranks.await_all();
  }
  EXPECT_EQ(ranks.nccl.living(), 0u);
  EXPECT_EQ(ranks.machine.cuda.left(), before);
}

TEST(Nccl, a_library_that_is_missing_or_another_is_named_with_what_to_install) {
  for (const char* const library : {"libnccl-of-nobody.so.2", "libc.so.6"}) {
    const auto api = load_nccl(library);
    ASSERT_FALSE(api);
    EXPECT_EQ(api.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(api.error().message, HasSubstr(library));
    EXPECT_THAT(api.error().message, HasSubstr("install NCCL"));
  }
}

}  // namespace
}  // namespace spillway::kernels::cuda
