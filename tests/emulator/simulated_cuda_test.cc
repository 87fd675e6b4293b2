// The simulated CUDA runtime sees what it is there to see: each rule is broken once.
#include "tests/emulator/simulated_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace spillway::emulator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kPage = 4096;

struct SimulatedCudaTest : testing::Test {
  SimulatedCudaTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 4 * kPage), cudaSuccess);
    EXPECT_EQ(cudaHostRegister(host, 4 * kPage, 0), cudaSuccess);
  }
  ~SimulatedCudaTest() override {
    cuda.take_misuse();
    cuda.reset();
    std::free(host);
  }
  std::string misuse() {
    std::string all;
    for (const std::string& one : cuda.take_misuse()) all += one + "; ";
    return all;
  }

  SimulatedCuda cuda{SimulatedCudaOptions{}};
  cudaStream_t stream = nullptr, other = nullptr;
  std::byte* device = nullptr;
  std::byte* host = static_cast<std::byte*>(std::aligned_alloc(kPage, 4 * kPage));
};

TEST_F(SimulatedCudaTest, a_copy_of_pageable_memory_is_reported) {
  std::vector<std::byte> pageable(kPage);
  cudaMemcpyAsync(device, pageable.data(), kPage, cudaMemcpyDefault, stream);
  EXPECT_THAT(misuse(), HasSubstr("neither the GPU's nor registered"));
  const void* from[] = {pageable.data()};
  void* to[] = {device};
  const size_t bytes[] = {kPage};
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  cudaMemcpyBatchAsync(to, from, bytes, 1, &how, &first, 1, stream);
  EXPECT_THAT(misuse(), HasSubstr("neither the GPU's nor registered"));
}

TEST_F(SimulatedCudaTest, a_copy_past_the_end_is_reported) {
  cudaMemcpyAsync(device + 1, host, 4 * kPage, cudaMemcpyDefault, stream);
  EXPECT_THAT(misuse(), HasSubstr("past the end"));
}

TEST_F(SimulatedCudaTest, the_default_stream_is_reported) {
  cudaMemcpyAsync(device, host, kPage, cudaMemcpyDefault, nullptr);
  EXPECT_THAT(misuse(), HasSubstr("default stream"));
  cudaStream_t blocking = nullptr;
  cudaStreamCreateWithFlags(&blocking, 0);
  EXPECT_THAT(misuse(), HasSubstr("waits for the default one"));
}

TEST_F(SimulatedCudaTest, memory_that_is_freed_too_early_is_reported) {
  cudaMemcpyAsync(device, host, kPage, cudaMemcpyDefault, stream);
  cudaHostUnregister(host);
  EXPECT_THAT(misuse(), HasSubstr("cudaHostUnregister of memory that an operation has yet to use"));
  cudaFree(device);
  EXPECT_THAT(misuse(), HasSubstr("cudaFree of memory that an operation has yet to use"));
}

TEST_F(SimulatedCudaTest, memory_that_is_freed_in_time_is_not) {
  cudaMemcpyAsync(device, host, kPage, cudaMemcpyDefault, stream);
  cuda.run_all();
  cudaFree(device);
  EXPECT_THAT(misuse(), IsEmpty());
  cudaFree(device);
  EXPECT_THAT(misuse(), HasSubstr("did not give"));
}

TEST_F(SimulatedCudaTest, an_event_destroyed_before_it_has_come_still_orders_what_waits_for_it) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  std::string ran;
  cuda.launch(stream, [&] { ran += "first "; });
  cudaEventRecord(event, stream);
  cudaStreamWaitEvent(other, event, 0);
  cuda.launch(other, [&] { ran += "second"; });
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_THAT(misuse(), IsEmpty());
  cuda.hold(stream, true);
  cuda.run_all();
  EXPECT_EQ(ran, "");
  cuda.hold(stream, false);
  cuda.run_all();
  EXPECT_EQ(ran, "first second");
  cudaEventRecord(event, stream);
  EXPECT_THAT(misuse(), HasSubstr("an event that there is none of"));
}

TEST_F(SimulatedCudaTest, calls_that_wait_are_reported_where_nothing_may) {
  cuda.forbid_waiting(true);
  cudaMemcpyAsync(device, host, kPage, cudaMemcpyDefault, stream);
  EXPECT_THAT(misuse(), IsEmpty());
  cudaStreamSynchronize(stream);
  EXPECT_THAT(misuse(), HasSubstr("cudaStreamSynchronize waits"));
  cudaDeviceSynchronize();
  EXPECT_THAT(misuse(), HasSubstr("cudaDeviceSynchronize waits"));
  void* more = nullptr;
  cudaMalloc(&more, kPage);
  EXPECT_THAT(misuse(), HasSubstr("cudaMalloc waits"));
}

TEST_F(SimulatedCudaTest, copies_of_a_batch_that_depend_on_each_other_are_reported) {
  void* to[] = {device, device + kPage};
  const void* from[] = {host, device};
  const size_t bytes[] = {kPage, kPage};
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  cudaMemcpyBatchAsync(to, from, bytes, 2, &how, &first, 1, stream);
  EXPECT_THAT(misuse(), HasSubstr("depend on each other"));
}

TEST_F(SimulatedCudaTest, a_word_that_the_gpu_does_not_see_is_reported) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &found, 11070, 0, &status);
  const auto write =
      reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(found);
  write(stream, reinterpret_cast<uintptr_t>(host), 1, 0);  // the host's name for it
  EXPECT_THAT(misuse(), HasSubstr("names no word"));
}

TEST_F(SimulatedCudaTest, a_wait_that_nothing_ends_is_reported) {
  void* word = nullptr;
  cudaHostGetDevicePointer(&word, host, 0);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 11070, 0, &status);
  const auto wait =
      reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(found);
  *reinterpret_cast<uint32_t*>(host) = 0;
  wait(stream, reinterpret_cast<uintptr_t>(word), 1, 0);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchTimeout);
  EXPECT_THAT(misuse(), HasSubstr("for ever"));
}

TEST(SimulatedCudaAlone, another_devices_stream_is_reported) {
  SimulatedCuda cuda({.devices = 2});
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cuda.launch(stream, [] {}), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(cuda.take_misuse(), ElementsAre(HasSubstr("not the current device's")));
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

using SimulatedCudaDeathTest = SimulatedCudaTest;
TEST_F(SimulatedCudaDeathTest, host_code_that_touches_a_gpus_memory_traps) {
  EXPECT_DEATH(device[0] = std::byte{1}, "");
  bool ran = false;
  cuda.launch(stream, [&] {
    device[0] = std::byte{1};
    ran = true;
  });
  cuda.run_all();
  EXPECT_TRUE(ran);
  EXPECT_DEATH(device[0] = std::byte{1}, "");
}

TEST(SimulatedCudaAloneDeathTest, misuse_that_nobody_looks_at_ends_the_process) {
  EXPECT_DEATH(
      {
        SimulatedCuda cuda{SimulatedCudaOptions{}};
        cudaStreamSynchronize(nullptr);
      },
      "CUDA misused: cudaStreamSynchronize uses the default stream");
}

TEST_F(SimulatedCudaTest, so_much_behind_a_shut_gate_that_cuda_blocks_is_reported) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 11070, 0, &status);
  const auto wait =
      reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, uint32_t, unsigned)>(found);
  void* word = nullptr;
  cudaHostGetDevicePointer(&word, host, 0);
  std::fill(host, host + 4, std::byte{});
  for (int i = 0; i < 3000; ++i) cuda.launch(stream, [] {});  // before the wait: they run
  wait(stream, reinterpret_cast<CUdeviceptr>(word), 1, 0);
  for (int i = 0; i < 1000; ++i) cuda.launch(stream, [] {});
  EXPECT_THAT(misuse(), IsEmpty());
  cuda.launch(other, [] {});
  EXPECT_THAT(misuse(), IsEmpty());
  cuda.launch(stream, [] {});
  EXPECT_THAT(misuse(), HasSubstr("blocks who enqueues it"));
  reinterpret_cast<std::atomic<uint32_t>*>(host)->store(1);
  cuda.launch(stream, [] {});  // the gate is open: it goes on by itself
  EXPECT_THAT(misuse(), IsEmpty());
}

TEST_F(SimulatedCudaTest, one_streams_operation_fails) {
  cuda.fail_stream(other, cudaErrorECCUncorrectable, 1);
  int ran = 0;
  for (int i = 0; i < 3; ++i) cuda.launch(stream, [&] { ++ran; });
  cuda.run_all();
  EXPECT_EQ(ran, 3);
  for (int i = 0; i < 3; ++i) cuda.launch(other, [&] { ++ran; });
  cuda.run_all();
  EXPECT_EQ(ran, 4);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorECCUncorrectable);
}

TEST_F(SimulatedCudaTest, an_error_stays_until_the_reset) {
  cuda.fail_operation(cudaErrorIllegalAddress, 1);
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) cuda.launch(stream, [&ran, i] { ran.push_back(i); });
  cuda.run_all();
  EXPECT_THAT(ran, ElementsAre(0));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemcpyAsync(device, host, kPage, cudaMemcpyDefault, stream),
            cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFree(device), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cuda.left(), "");
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
}

TEST_F(SimulatedCudaTest, a_call_fails_once_when_it_is_told_to) {
  cuda.fail_call("cudaMalloc", cudaErrorMemoryAllocation, 1);
  void* at = nullptr;
  EXPECT_EQ(cudaMalloc(&at, kPage), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&at, kPage), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&at, kPage), cudaSuccess);
}

TEST_F(SimulatedCudaTest, what_nobody_freed_is_told) {
  EXPECT_THAT(cuda.left(), HasSubstr("16384 bytes of the GPU are not freed"));
  EXPECT_THAT(cuda.left(), HasSubstr("16384 bytes are still registered"));
  EXPECT_THAT(cuda.left(), HasSubstr("2 streams"));
}

// The order in which two streams run comes from the seed; an event puts one behind the other.
std::string order_of(uint64_t seed, bool ordered) {
  SimulatedCuda cuda({.seed = seed});
  cudaStream_t a = nullptr, b = nullptr;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  std::string order;
  for (int i = 0; i < 4; ++i) cuda.launch(a, [&] { order += 'a'; });
  cudaEventRecord(event, a);
  if (ordered) cudaStreamWaitEvent(b, event, 0);
  for (int i = 0; i < 4; ++i) cuda.launch(b, [&] { order += 'b'; });
  cuda.run_all();
  return order;
}

TEST(SimulatedCudaAlone, a_seed_is_an_order_and_an_event_is_one_too) {
  std::vector<std::string> orders;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    orders.push_back(order_of(seed, false));
    EXPECT_EQ(orders.back(), order_of(seed, false));
    EXPECT_EQ(order_of(seed, true), "aaaabbbb");
  }
  EXPECT_THAT(orders, testing::Contains("aaaabbbb").Times(testing::Lt(10)));
}

TEST_F(SimulatedCudaTest, a_copys_bytes_are_garbage_until_it_has_ended) {
  std::fill(host, host + kPage, std::byte{1});
  std::fill(host + kPage, host + 2 * kPage, std::byte{2});
  cudaMemcpyAsync(host + kPage, host, kPage, cudaMemcpyDefault, stream);
  EXPECT_TRUE(cuda.step());
  EXPECT_EQ(host[2 * kPage - 1], std::byte{0xa5});
  EXPECT_TRUE(cuda.step());
  EXPECT_EQ(host[2 * kPage - 1], std::byte{1});
  EXPECT_FALSE(cuda.step());
}

}  // namespace
}  // namespace spillway::emulator
