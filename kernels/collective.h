// What the ranks of a divided model do together: sums over all of them, and rows put side by side.
// The in-process one (in_process_collective.h) serves devices whose memory all can reach; another
// library's goes behind the same calls.
//
// Every call enqueues work on the compute stream of each rank and returns: it runs after all that
// was enqueued there before, and what is enqueued later sees its outcome. Engine thread. The
// buffers belong to the operation until an event recorded later on any rank's compute stream is
// done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::kernels {

// One rank's columns of rows that all have a part of.
struct RowPart {
  const float* rows = nullptr;  // (row, width)
  size_t width = 0;
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual uint32_t ranks() const = 0;
  // Each of the ranks' buffers, in their order, becomes the sum of all: one f32 addition after the
  // other in ascending order of ranks, so that the bits depend on their number alone.
  virtual void all_reduce(std::span<float* const> buffers, size_t count) = 0;
  // Writes the parts of all ranks side by side to `to`, memory of rank 0: (row, sum of widths).
  virtual void gather(std::span<const RowPart> parts, size_t rows, float* to) = 0;
};

}  // namespace spillway::kernels
