// Capture of the simulated runtime's streams, and the graphs that it gives, by the rules that
// CUDA's documentation states: while a stream captures, what is enqueued there does not run; a call
// that has to wait, or looks at what is captured, spoils the capture, as does a wait for what lies
// outside of it; and then all that is enqueued fails until the capture is ended. An event recorded
// there belongs to the capture: another stream that waits for it captures too, and has to be
// waited for before the end.
//
// A graph's operations run one after the other in the order in which they were captured: one of the
// orders that CUDA might choose.
//
// Thread: that of the runtime's calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/cuda_runtime.h"
#include "tests/emulator/simulated_stream.h"

namespace spillway::emulator {

// How many of each capturing stream's operations something comes after.
using CapturedUpTo = std::map<cudaStream_t, uint64_t>;

struct Capture {
  cudaStream_t origin = nullptr;
  bool spoilt = false;
  bool ended = false;
  std::vector<std::shared_ptr<const Operation>> operations;
  std::map<cudaStream_t, CapturedUpTo> streams;  // what each one's next operation comes after

  void add(cudaStream_t stream, std::unique_ptr<Operation> operation);
  // A stream's next operation comes after these too.
  void order(cudaStream_t stream, const CapturedUpTo& after);
  bool joined() const;  // all that other streams have captured comes before the origin's end
};

struct CapturedEvent {
  std::shared_ptr<Capture> capture;
  CapturedUpTo after;
};

// All graphs of a runtime.
class SimulatedGraphs {
 public:
  cudaGraph_t add(std::vector<std::shared_ptr<const Operation>> operations);
  cudaGraphExec_t instantiate(cudaGraph_t graph);
  bool remove(cudaGraph_t graph) { return graphs_.erase(graph) != 0; }
  bool remove(cudaGraphExec_t graph) { return ready_.erase(graph) != 0; }
  bool knows(cudaGraph_t graph) const { return graphs_.contains(graph); }
  bool knows(cudaGraphExec_t graph) const { return ready_.contains(graph); }
  std::string left() const;  // what nobody destroyed, a line each
  void clear();              // as a reset does

 private:
  std::map<cudaGraph_t, std::unique_ptr<CUgraph_st>> graphs_;
  std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> ready_;
};

}  // namespace spillway::emulator

struct CUgraph_st {
  std::vector<std::shared_ptr<const spillway::emulator::Operation>> operations;
};

struct CUgraphExec_st {
  std::vector<std::shared_ptr<const spillway::emulator::Operation>> operations;
  std::shared_ptr<spillway::emulator::Recording> last;  // the end of its last launch; null: none
};
