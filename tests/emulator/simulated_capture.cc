#include "tests/emulator/simulated_capture.h"

#include <algorithm>
#include <utility>

#include "tests/emulator/simulated_cuda.h"

namespace spillway::emulator {

void Capture::add(cudaStream_t stream, std::unique_ptr<Operation> operation) {
  ++streams[stream][stream];
  operations.push_back(std::move(operation));
}

void Capture::order(cudaStream_t stream, const CapturedUpTo& after) {
  CapturedUpTo& known = streams[stream];
  for (const auto& [other, count] : after) known[other] = std::max(known[other], count);
}

bool Capture::joined() const {
  const CapturedUpTo& end = streams.at(origin);
  return std::all_of(streams.begin(), streams.end(), [&](const auto& one) {
    const auto captured = one.second.find(one.first);
    if (captured == one.second.end()) return true;
    const auto waited_for = end.find(one.first);
    return waited_for != end.end() && waited_for->second == captured->second;
  });
}

cudaGraph_t SimulatedGraphs::add(std::vector<std::shared_ptr<const Operation>> operations) {
  auto made = std::make_unique<CUgraph_st>();
  made->operations = std::move(operations);
  const cudaGraph_t graph = made.get();
  graphs_.emplace(graph, std::move(made));
  return graph;
}

cudaGraphExec_t SimulatedGraphs::instantiate(cudaGraph_t graph) {
  auto made = std::make_unique<CUgraphExec_st>();
  made->operations = graph->operations;
  const cudaGraphExec_t ready = made.get();
  ready_.emplace(ready, std::move(made));
  return ready;
}

std::string SimulatedGraphs::left() const {
  std::string out;
  if (!graphs_.empty()) out += std::to_string(graphs_.size()) + " graphs\n";
  if (!ready_.empty()) out += std::to_string(ready_.size()) + " executable graphs\n";
  return out;
}

void SimulatedGraphs::clear() {
  graphs_.clear();
  ready_.clear();
}

}  // namespace spillway::emulator

namespace {

using spillway::emulator::Capture;
using spillway::emulator::Operation;
using spillway::emulator::Recording;
using spillway::emulator::SimulatedCuda;

SimulatedCuda& cuda() { return SimulatedCuda::current(); }

std::unique_ptr<Operation> event_operation(Operation::Kind kind,
                                           std::shared_ptr<Recording> recording) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  operation->recording = std::move(recording);
  return operation;
}

cudaError_t unknown(const char* call) {
  cuda().report(std::string(call) + " uses a graph that there is none of");
  return cudaErrorInvalidResourceHandle;
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const char* const call = "cudaStreamBeginCapture";
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  if (!cuda().known(call, stream)) return cudaErrorInvalidResourceHandle;
  if (mode == cudaStreamCaptureModeGlobal) {
    cuda().report(std::string(call) + " that forbids other threads to allocate");
  }
  if (stream->capture != nullptr) {
    cuda().report(std::string(call) + " on a stream that captures");
    return cudaErrorIllegalState;
  }
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->streams[stream] = {};
  cuda().captures_begin(stream->capture);
  return cudaSuccess;
}

// However it goes, the streams capture no more.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const char* const call = "cudaStreamEndCapture";
  *graph = nullptr;
  const cudaError_t error = cuda().begin(call);
  if (!cuda().known(call, stream)) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin != stream) {
    cuda().report(std::string(call) + " on a stream that has begun none");
    return capture == nullptr ? cudaErrorIllegalState : cudaErrorStreamCaptureUnmatched;
  }
  cuda().captures_end(capture);
  if (error != cudaSuccess) return error;
  if (capture->spoilt) return cudaErrorStreamCaptureInvalidated;
  if (!capture->joined()) {
    cuda().report(std::string(call) + " while other streams have yet to be waited for");
    return cudaErrorStreamCaptureUnjoined;
  }
  *graph = cuda().graphs().add(capture->operations);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const char* const call = "cudaStreamIsCapturing";
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  if (!cuda().known(call, stream)) return cudaErrorInvalidResourceHandle;
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->spoilt  ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                          unsigned long long flags) {
  const char* const call = "cudaGraphInstantiateWithFlags";
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  if (!cuda().graphs().knows(graph)) return unknown(call);
  if (flags != 0) return cudaErrorInvalidValue;
  *made = cuda().graphs().instantiate(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const char* const call = "cudaGraphDestroy";
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  return cuda().graphs().remove(graph) ? cudaSuccess : unknown(call);
}

// Behind what the stream has, and behind the graph's last launch wherever that was.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const char* const call = "cudaGraphLaunch";
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  if (!cuda().known(call, stream)) return cudaErrorInvalidResourceHandle;
  if (!cuda().graphs().knows(graph)) return unknown(call);
  if (stream->capture != nullptr) {
    cuda().spoil(*stream->capture, std::string(call) + " while the stream captures");
    return cudaErrorStreamCaptureUnsupported;
  }
  if (graph->last != nullptr) {
    cuda().enqueue(stream, event_operation(Operation::Kind::kWaitEvent, graph->last));
  }
  for (const auto& operation : graph->operations) {
    cuda().enqueue(stream, std::make_unique<Operation>(*operation));
  }
  graph->last = std::make_shared<Recording>(false);
  cuda().enqueue(stream, event_operation(Operation::Kind::kRecord, graph->last));
  return cudaSuccess;
}

// What runs of it ends: it is freed then.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const char* const call = "cudaGraphExecDestroy";
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  return cuda().graphs().remove(graph) ? cudaSuccess : unknown(call);
}
