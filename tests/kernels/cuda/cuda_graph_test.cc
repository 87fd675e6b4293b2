// Graphs of the CUDA device's compute stream: what runs when, and that whatever is refused leaves
// the stream and the device as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/cuda_machine.h"

namespace spillway::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct CudaGraphTest : testing::Test {
  CudaMachine machine;
  emulator::SimulatedCuda& cuda = machine.cuda;
  CudaDevice& device = *machine.make_device();
  Stream& stream = device.compute();
  std::string ran;
  std::unique_ptr<Graph> graph;
  std::string why;  // there is none

  Result<> enqueue(char mark) {
    const cudaError_t error = cuda.launch(device.native(stream), [this, mark] { ran += mark; });
    if (error == cudaSuccess) return {};
    return Error{ErrorCode::kIo, "refused"};
  }
  void capture(const std::string& marks) {
    stream.launch([&](Team&) {
      auto made = device.graphs().capture([&]() -> Result<> {
        for (const char mark : marks) {
          if (auto enqueued = enqueue(mark); !enqueued) return enqueued;
        }
        return {};
      });
      if (made) {
        graph = std::move(*made);
      } else {
        why = made.error().message;
      }
    });
  }
  bool launch() {
    bool launched = false;
    stream.launch([&](Team&) { launched = graph->launch().has_value(); });
    return launched;
  }
  void run(char mark) {
    machine.run(stream, [this, mark] { ran += mark; });
  }
  // All of the stream, which works.
  void expect_ran(const std::string& marks) {
    machine.finish(stream);
    EXPECT_EQ(ran, marks);
    EXPECT_EQ(device.failure(), nullptr);
    EXPECT_THAT(cuda.take_misuse(), IsEmpty());
  }
};

TEST_F(CudaGraphTest, a_graph_runs_in_the_streams_order_each_time_it_is_launched) {
  cuda.forbid_waiting(true);
  run('1');
  capture("ab");
  run('2');
  for (char mark = '3'; mark < '6'; ++mark) {
    EXPECT_TRUE(launch());
    run(mark);
  }
  expect_ran("12ab3ab4ab5");
  cuda.forbid_waiting(false);
}

// Its kernels look at the memory that their arguments point to, when they run.
TEST_F(CudaGraphTest, a_graph_reads_what_the_copy_before_it_has_brought) {
  const DeviceMemory there = *device.allocate(4), host = *device.allocate_host(4);
  const std::byte* const at = there.data;
  stream.launch([&](Team&) {
    auto made = device.graphs().capture([&]() -> Result<> {
      cuda.launch(device.native(stream), [this, at] { ran += static_cast<char>(*at); });
      return {};
    });
    ASSERT_TRUE(made);
    graph = std::move(*made);
  });
  for (const char mark : {'x', 'y'}) {
    std::memset(host.data, mark, 4);
    stream.copy(there.data, host.data, 4);
    EXPECT_TRUE(launch());
    machine.finish(stream);
  }
  expect_ran("xy");
}

TEST_F(CudaGraphTest, a_graph_may_go_while_it_runs) {
  capture("ab");
  EXPECT_TRUE(launch());
  graph.reset();
  expect_ran("ab");
  EXPECT_THAT(cuda.left(), testing::Not(HasSubstr("graph")));
}

TEST_F(CudaGraphTest, a_capture_that_is_refused_leaves_all_as_it_was) {
  const char* const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                               "cudaGraphInstantiateWithFlags"};
  for (const char* const call : calls) {
    cuda.fail_call(call, cudaErrorMemoryAllocation);
    capture("ab");
    EXPECT_EQ(graph, nullptr);
    EXPECT_THAT(why, HasSubstr("out of memory"));
    run('.');
  }
  expect_ran("...");
  EXPECT_THAT(cuda.left(), testing::Not(HasSubstr("graph")));
  capture("ab");
  EXPECT_TRUE(launch());
  expect_ran("...ab");
}

TEST_F(CudaGraphTest, a_kernel_that_is_refused_in_a_capture_is_its_error) {
  cuda.fail_call("launch", cudaErrorInvalidValue, 1);
  capture("ab");
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(why, "refused");
  run('.');
  expect_ran(".");
  EXPECT_THAT(cuda.left(), testing::Not(HasSubstr("graph")));
}

TEST_F(CudaGraphTest, a_capture_that_something_has_spoilt_is_an_error) {
  stream.launch([&](Team&) {
    const auto made = device.graphs().capture([&]() -> Result<> {
      cudaStreamSynchronize(device.native(stream));
      return {};
    });
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr("cudaStreamEndCapture"));
  });
  EXPECT_THAT(cuda.take_misuse(), testing::SizeIs(1));
  run('.');
  expect_ran(".");
}

TEST_F(CudaGraphTest, a_launch_that_is_refused_runs_nothing_and_the_device_goes_on) {
  capture("ab");
  cuda.fail_call("cudaGraphLaunch", cudaErrorMemoryAllocation);
  EXPECT_FALSE(launch());
  run('.');
  EXPECT_TRUE(launch());
  expect_ran(".ab");
}

TEST_F(CudaGraphTest, a_lost_device_takes_its_graphs_with_it) {
  capture("ab");
  cuda.fail_operation(cudaErrorIllegalAddress, 1);
  EXPECT_TRUE(launch());
  machine.finish(stream);
  ASSERT_NE(device.failure(), nullptr);
  EXPECT_EQ(ran, "a");
  EXPECT_FALSE(graph->launch().has_value());
  machine.device.reset();
  graph.reset();  // and is not destroyed a second time
  EXPECT_THAT(cuda.take_misuse(), IsEmpty());
  EXPECT_EQ(cuda.left(), "");
}

}  // namespace
}  // namespace spillway::kernels::cuda
