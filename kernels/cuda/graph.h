// Kernels of a stream, captured once and then enqueued by one call (CUDA graphs). A launch costs
// the caller 2 to 4 us, a graph of 600 kernels about 10: for small steps that is more than what the
// GPU has to do.
//
// A graph has its kernels' arguments as they were when it was captured: what is to differ from one
// launch to the next must lie in the memory that they point to, which must outlive the graph.
#pragma once

#include <functional>
#include <memory>

#include "runtime/result.h"

namespace spillway::kernels::cuda {

// Engine thread. May be destroyed while it runs: what was enqueued ends.
class Graph {
 public:
  virtual ~Graph() = default;
  // Enqueues the kernels in their order, after what the stream has and before what follows. An
  // error: the driver took none of them.
  virtual Result<> launch() = 0;
};

// Of one stream. Engine thread.
class GraphMaker {
 public:
  virtual ~GraphMaker() = default;
  // Calls `enqueue`, whose operators on the stream are captured and do not run. It may do nothing
  // else with the stream, nor call what waits for the GPU or allocates; a kernel that the process
  // has not launched yet had better run once before, since CUDA loads it then. An error, that of
  // `enqueue` or the driver's: nothing was enqueued, the stream is as it was, and the device goes
  // on. Called where launches run.
  virtual Result<std::unique_ptr<Graph>> capture(const std::function<Result<>()>& enqueue) = 0;
};

}  // namespace spillway::kernels::cuda
