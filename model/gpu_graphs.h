// The layers of decode steps as graphs (kernels/cuda/graph.h). A step in which every sequence has
// one row runs the same kernels over the same memory as the last one did: what differs lies in what
// the step's copy brings up. Such a step is padded to a size of few (staging lays it out), and from
// a size's second step on one call launches all of its layers.
//
// Sketch: a launch takes the CPU 2 to 4 us, and a layer has about 19: 32 layers are 1.2 to 2.4 ms,
// where a GPU of 4.8 TB/s reads the 4.6 GB of an 8B model in Q4 in 1 ms. Launching a graph is some
// 10 us. What stays outside are logits and draws, 6 launches and the copy down, which go out while
// the layers run. Padding costs the GPU little: products read their weights once for all rows, the
// padding's rows attend to nothing, and up to half the blocks of attention find no split and end.
//
// A size's first step is launched plain: it may be the only one. Capturing then takes about as long
// as launching its kernels, and making the graph as long again; it is done once for each of the two
// steps that may be under way, for they lie in different memory. Where anything is refused there
// are no graphs from then on, which the log says once, and every step is launched plain. (None of
// this has been measured on a GPU.)
//
// Bound: graphs of powers of two of rows up to the limit, by powers of two of splits up to the
// context's, by two: at 64 rows and 128k tokens 7 * 9 * 2, each with the arguments of 610 kernels.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/cuda/graph.h"
#include "model/gpu_forward.h"
#include "model/gpu_operators.h"
#include "model/gpu_tile.h"
#include "runtime/result.h"

namespace spillway::model {

// Engine thread, where launches run but for the constructor, rows_max() and clear().
class GpuGraphs {
 public:
  // `maker`, of `stream`, may be null: there are none. Steps of up to `rows_max` rows, rounded down
  // to a size.
  GpuGraphs(CUstream_st* stream, kernels::cuda::GraphMaker* maker, uint32_t rows_max);

  // That a step may have to be padded; 0: none is.
  uint32_t rows_max() const { return maker_ == nullptr ? 0 : rows_max_; }
  // Enqueues all layers of a tile, as a graph where it is laid out for one. `slot` is the memory
  // that it lies in.
  void run_layers(size_t slot, const GpuTile& tile, GpuForward& forward, GpuOperators& run);
  // Forgets all: what the graphs' kernels point to is to change.
  void clear() { sizes_.clear(); }

 private:
  struct Key {
    size_t slot = 0;
    GpuGraphSize size;
    auto operator<=>(const Key&) const = default;
  };
  struct Captured {
    std::unique_ptr<kernels::cuda::Graph> graph;  // null: one step has been launched plain
    GpuForward::Rows rows;                        // where it leaves them
  };
  Result<> capture(Captured& to, const GpuTile& tile, GpuForward& forward);
  void give_up(const Error& why);

  CUstream_st* const stream_;
  kernels::cuda::GraphMaker* maker_;
  const uint32_t rows_max_;
  std::map<Key, Captured> sizes_;
};

}  // namespace spillway::model
