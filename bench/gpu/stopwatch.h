// The time between two points of a stream, as the GPU's own clock has it (stopwatch.cc: CUDA
// events); on the simulated runtime, the host's, which says nothing.
#pragma once

#include <memory>

struct CUstream_st;

namespace spillway::bench {

class Stopwatch {
 public:
  Stopwatch();
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start(CUstream_st* stream);  // when the stream gets here
  void stop(CUstream_st* stream);
  double seconds();  // waits for the stop; negative where CUDA failed

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace spillway::bench
