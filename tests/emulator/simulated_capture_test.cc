// Streams that capture, and graphs: what runs when, and that each rule which is broken is seen.
#include "tests/emulator/simulated_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/emulator/simulated_cuda.h"

namespace spillway::emulator {
namespace {

using testing::HasSubstr;

struct SimulatedCaptureTest : testing::Test {
  SimulatedCaptureTest() {
    for (cudaStream_t* each : {&stream, &other}) {
      EXPECT_EQ(cudaStreamCreateWithFlags(each, cudaStreamNonBlocking), cudaSuccess);
    }
    for (cudaEvent_t* each : {&event, &back}) {
      EXPECT_EQ(cudaEventCreateWithFlags(each, cudaEventDisableTiming), cudaSuccess);
    }
  }
  ~SimulatedCaptureTest() override {
    cuda.take_misuse();
    cuda.reset();
  }
  std::string misuse() {
    std::string all;
    for (const std::string& one : cuda.take_misuse()) all += one + "; ";
    return all;
  }
  cudaError_t run(cudaStream_t on, char mark) {
    return cuda.launch(on, [this, mark] { ran += mark; });
  }
  void begin() {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  // What cudaStreamEndCapture() says; a graph is launched when it is there.
  cudaError_t end() {
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, error == cudaSuccess);
    return error;
  }
  cudaGraphExec_t ready() {
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(cudaGraphInstantiateWithFlags(&made, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return made;
  }
  cudaStreamCaptureStatus status() {
    cudaStreamCaptureStatus of_stream = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream, &of_stream), cudaSuccess);
    return of_stream;
  }
  // Something has spoilt the capture: nothing more goes in, and no graph comes of it.
  void expect_spoilt(const std::string& why) {
    EXPECT_THAT(misuse(), HasSubstr(why));
    EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(run(stream, 'x'), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
    EXPECT_EQ(run(stream, 'p'), cudaSuccess);
    cuda.run_all();
    EXPECT_EQ(ran, "p");
  }

  SimulatedCuda cuda{SimulatedCudaOptions{}};
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr, back = nullptr;
  cudaGraph_t graph = nullptr;
  std::string ran;
};

TEST_F(SimulatedCaptureTest, what_is_captured_runs_when_its_graph_is_launched_and_each_time) {
  run(stream, '1');
  begin();
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  run(stream, 'a');
  run(stream, 'b');
  cuda.run_all();
  EXPECT_EQ(ran, "1");
  EXPECT_EQ(end(), cudaSuccess);
  const cudaGraphExec_t made = ready();
  run(stream, '2');
  EXPECT_EQ(cudaGraphLaunch(made, stream), cudaSuccess);
  run(stream, '3');
  EXPECT_EQ(cudaGraphLaunch(made, stream), cudaSuccess);
  cuda.run_all();
  EXPECT_EQ(ran, "12ab3ab");
  EXPECT_EQ(cudaGraphExecDestroy(made), cudaSuccess);
  EXPECT_EQ(misuse(), "");
}

TEST_F(SimulatedCaptureTest, a_graph_does_not_run_beside_itself) {
  begin();
  for (int i = 0; i < 4; ++i) run(stream, static_cast<char>('a' + i));
  EXPECT_EQ(end(), cudaSuccess);
  const cudaGraphExec_t made = ready();
  cudaGraphLaunch(made, stream);
  cudaGraphLaunch(made, other);
  cuda.run_all();
  EXPECT_EQ(ran, "abcdabcd");
}

TEST_F(SimulatedCaptureTest, a_graph_that_is_destroyed_while_it_runs_ends_and_is_gone) {
  begin();
  run(stream, 'a');
  run(stream, 'b');
  EXPECT_EQ(end(), cudaSuccess);
  const cudaGraphExec_t made = ready();
  cudaGraphLaunch(made, stream);
  EXPECT_TRUE(cuda.step());
  EXPECT_EQ(cudaGraphExecDestroy(made), cudaSuccess);
  cuda.run_all();
  EXPECT_EQ(ran, "ab");
  EXPECT_EQ(misuse(), "");
  EXPECT_EQ(cudaGraphLaunch(made, stream), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(misuse(), HasSubstr("cudaGraphLaunch uses a graph that there is none of"));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(misuse(), HasSubstr("cudaGraphDestroy uses a graph that there is none of"));
}

TEST_F(SimulatedCaptureTest, an_event_takes_another_stream_into_the_capture_and_back) {
  begin();
  run(stream, 'a');
  cudaEventRecord(event, stream);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  run(other, 'b');
  cudaEventRecord(back, other);
  EXPECT_EQ(cudaStreamWaitEvent(stream, back, 0), cudaSuccess);
  run(stream, 'c');
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(ran, "");
  cudaGraphLaunch(ready(), stream);
  run(other, 'd');  // captures no more
  cuda.run_all();
  EXPECT_EQ(ran.size(), 4u);
  std::erase(ran, 'd');
  EXPECT_EQ(ran, "abc");
  EXPECT_EQ(misuse(), "");
}

TEST_F(SimulatedCaptureTest, a_stream_that_nobody_waits_for_before_the_end_is_reported) {
  begin();
  cudaEventRecord(event, stream);
  cudaStreamWaitEvent(other, event, 0);
  run(other, 'b');
  cudaEventRecord(back, other);
  run(other, 'c');
  cudaStreamWaitEvent(stream, back, 0);  // for b alone
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_THAT(misuse(), HasSubstr("have yet to be waited for"));
}

TEST_F(SimulatedCaptureTest, calls_that_wait_or_allocate_spoil_a_capture) {
  void* at = nullptr;
  begin();
  EXPECT_EQ(cudaMalloc(&at, 4096), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaMalloc while a stream captures");
  ran.clear();
  begin();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaStreamSynchronize while a stream captures");
}

TEST_F(SimulatedCaptureTest, a_captured_event_tells_nothing) {
  begin();
  cudaEventRecord(event, stream);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  expect_spoilt("cudaEventQuery of an event that was captured");
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaErrorCapturedEvent);
  EXPECT_THAT(misuse(), HasSubstr("a capture that has ended"));
  cudaEventRecord(event, stream);  // one like all others again
  cuda.run_all();
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST_F(SimulatedCaptureTest, a_wait_for_what_lies_outside_spoils_a_capture) {
  cudaEventRecord(event, other);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
  expect_spoilt("outside of the capture");
}

TEST_F(SimulatedCaptureTest, two_captures_do_not_become_one) {
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaEventRecord(event, other);
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureMerge);
  cudaGraph_t of_other = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other, &of_other), cudaErrorStreamCaptureInvalidated);
  expect_spoilt("an event of another capture");
}

// CUDA refuses it and captures on, so that the copy is missing from the graph.
TEST_F(SimulatedCaptureTest, a_batch_of_copies_is_refused_and_reported) {
  void* at = nullptr;
  cudaMalloc(&at, 64);
  auto* const bytes = static_cast<std::byte*>(at);
  void* to[] = {bytes};
  const void* from[] = {bytes + 32};
  const size_t sizes[] = {32};
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  begin();
  EXPECT_EQ(cudaMemcpyBatchAsync(to, from, sizes, 1, &how, &first, 1, stream),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_THAT(misuse(), HasSubstr("cudaMemcpyBatchAsync while the stream captures"));
  run(stream, 'a');
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(SimulatedCaptureTest, a_capture_begins_and_ends_once_and_on_its_stream) {
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  EXPECT_THAT(misuse(), HasSubstr("on a stream that has begun none"));
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            cudaErrorIllegalState);
  EXPECT_THAT(misuse(), HasSubstr("on a stream that captures"));
  cudaEventRecord(event, stream);
  cudaStreamWaitEvent(other, event, 0);
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_THAT(misuse(), HasSubstr("on a stream that has begun none"));
  EXPECT_EQ(end(), cudaSuccess);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  EXPECT_THAT(misuse(), HasSubstr("forbids other threads to allocate"));
  cudaStreamDestroy(stream);
  EXPECT_THAT(misuse(), HasSubstr("cudaStreamDestroy of a stream that captures"));
}

TEST_F(SimulatedCaptureTest, what_is_to_fail_does_and_the_capture_is_over) {
  begin();
  cuda.fail_call("cudaStreamEndCapture", cudaErrorMemoryAllocation);
  EXPECT_EQ(end(), cudaErrorMemoryAllocation);
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  begin();
  run(stream, 'a');
  EXPECT_EQ(end(), cudaSuccess);
  cudaGraphExec_t made = nullptr;
  cuda.fail_call("cudaGraphInstantiateWithFlags", cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&made, graph, 0), cudaErrorMemoryAllocation);
  made = ready();
  cuda.fail_call("cudaGraphLaunch", cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGraphLaunch(made, stream), cudaErrorMemoryAllocation);
  cuda.run_all();
  EXPECT_EQ(ran, "");
  EXPECT_THAT(cuda.left(), HasSubstr("1 executable graphs"));
}

}  // namespace
}  // namespace spillway::emulator
