// The simulated NCCL sees what it is there to see: each rule is broken once.
#include "tests/emulator/simulated_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace spillway::emulator {
namespace {

using kernels::cuda::NcclResult;
using kernels::cuda::NcclType;
using testing::HasSubstr;

constexpr size_t kFloats = 16;
constexpr size_t kBytes = kFloats * sizeof(float);

// Two ranks, each with a stream and memory of its GPU: what it sends, and then what it receives.
struct SimulatedNcclTest : testing::Test {
  SimulatedNcclTest() {
    for (int r = 0; r < 2; ++r) {
      cudaSetDevice(r);
      cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking);
      cudaMalloc(reinterpret_cast<void**>(&memory[r]), 2 * kBytes);
      const SimulatedMemory::Access access(cuda.memory());
      for (size_t i = 0; i < kFloats; ++i) memory[r][i] = static_cast<float>(100 * r) + float(i);
    }
    const int devices[] = {0, 1};
    EXPECT_EQ(api.comm_init_all(comms, 2, devices), NcclResult::kSuccess);
  }
  ~SimulatedNcclTest() override {
    for (ncclComm* const comm : comms) {
      if (nccl.living() > 0) api.comm_abort(comm);
    }
    cuda.run_all();
    cuda.take_misuse();
    cudaSetDevice(0);
    cuda.reset();
  }
  NcclResult send(int rank, size_t count = kFloats) {
    return api.send(memory[rank], count, NcclType::kFloat32, 1 - rank, comms[rank], streams[rank]);
  }
  NcclResult receive(int rank, size_t count = kFloats) {
    return api.recv(memory[rank] + kFloats, count, NcclType::kFloat32, 1 - rank, comms[rank],
                    streams[rank]);
  }
  float received(int rank, size_t i) {
    const SimulatedMemory::Access access(cuda.memory());
    return memory[rank][kFloats + i];
  }
  std::string misuse() {
    std::string all;
    for (const std::string& one : cuda.take_misuse()) all += one + "; ";
    return all;
  }

  SimulatedCuda cuda{SimulatedCudaOptions{.devices = 2}};
  SimulatedNccl nccl{cuda};
  const kernels::cuda::NcclApi api = nccl.api();
  cudaStream_t streams[2] = {};
  float* memory[2] = {};
  ncclComm* comms[2] = {};
};

TEST_F(SimulatedNcclTest, a_group_brings_each_rank_what_the_other_sent) {
  api.group_start();
  for (int r = 0; r < 2; ++r) {
    send(r);
    receive(r);
  }
  EXPECT_FALSE(cuda.step());  // a group is enqueued when it ends
  EXPECT_EQ(api.group_end(), NcclResult::kSuccess);
  cuda.run_all();
  EXPECT_TRUE(streams[0]->idle() && streams[1]->idle());
  EXPECT_EQ(received(0, 3), 103);
  EXPECT_EQ(received(1, 3), 3);
  EXPECT_EQ(misuse(), "");
}

TEST_F(SimulatedNcclTest, a_rank_waits_for_what_stands_before_its_peer_on_that_ones_stream) {
  cuda.hold(streams[1], true);
  api.group_start();
  for (int r = 0; r < 2; ++r) {
    send(r);
    receive(r);
  }
  api.group_end();
  cuda.run_all();
  EXPECT_FALSE(streams[0]->idle());
  cuda.hold(streams[1], false);
  cuda.run_all();
  EXPECT_TRUE(streams[0]->idle());
}

TEST_F(SimulatedNcclTest, sends_outside_of_a_group_are_reported_and_wait_for_each_other_for_ever) {
  for (int r = 0; r < 2; ++r) {
    send(r);
    receive(r);
  }
  EXPECT_THAT(misuse(), HasSubstr("ncclSend outside of a group"));
  cuda.run_all();
  EXPECT_FALSE(streams[0]->idle() || streams[1]->idle());
  cudaSetDevice(0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
  EXPECT_THAT(misuse(), HasSubstr("waits for ever"));
  api.comm_abort(comms[0]);  // lets both go
  api.comm_abort(comms[1]);
  cuda.run_all();
  EXPECT_TRUE(streams[0]->idle() && streams[1]->idle());
}

TEST_F(SimulatedNcclTest, memory_and_streams_of_another_gpu_are_reported) {
  api.group_start();
  api.send(memory[1], 1, NcclType::kFloat32, 1, comms[0], streams[0]);
  EXPECT_THAT(misuse(), HasSubstr("memory that is another GPU's"));
  api.send(memory[0], 1, NcclType::kFloat32, 1, comms[0], streams[1]);
  EXPECT_THAT(misuse(), HasSubstr("a stream that is another GPU's"));
  api.send(memory[0], 4 * kFloats, NcclType::kFloat32, 1, comms[0], streams[0]);
  EXPECT_THAT(misuse(), HasSubstr("past its end"));
  api.send(memory[0], 1, NcclType::kFloat32, 0, comms[0], streams[0]);
  EXPECT_THAT(misuse(), HasSubstr("to itself"));
  api.group_end();
}

TEST_F(SimulatedNcclTest, other_counts_at_the_two_ends_are_reported) {
  api.group_start();
  send(0);
  receive(1, kFloats - 1);
  api.group_end();
  EXPECT_THAT(misuse(), HasSubstr("as much is not received as is sent"));
}

TEST_F(SimulatedNcclTest,
       a_communicator_that_is_gone_is_reported_and_so_is_one_that_goes_too_early) {
  api.group_start();
  send(0);
  api.group_end();
  api.comm_destroy(comms[1]);
  EXPECT_THAT(misuse(), HasSubstr("that something waits for"));
  api.group_start();
  EXPECT_EQ(send(1), NcclResult::kInvalidUsage);
  api.group_end();
  EXPECT_THAT(misuse(), HasSubstr("that there is none of"));
  EXPECT_EQ(api.group_end(), NcclResult::kInvalidUsage);
  EXPECT_THAT(misuse(), HasSubstr("without its begin"));
  api.comm_abort(comms[0]);
}

TEST_F(SimulatedNcclTest, a_gpu_is_no_two_ranks) {
  ncclComm* more[2] = {};
  const int twice[] = {1, 1};
  EXPECT_EQ(api.comm_init_all(more, 2, twice), NcclResult::kInvalidUsage);
}

using SimulatedNcclDeathTest = SimulatedNcclTest;

TEST_F(SimulatedNcclDeathTest, a_kernel_that_touches_another_gpus_memory_traps) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        cudaSetDevice(0);
        cuda.launch(streams[0], [this] { memory[1][0] = 1; });
        cuda.run_all();
      },
      "");
}

}  // namespace
}  // namespace spillway::emulator
