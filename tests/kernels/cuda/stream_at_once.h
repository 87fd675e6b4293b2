// A stream whose operators have run by the time that somebody looks: for kernels, models and
// engines over memory that host and GPU both reach. On the emulator (emulated_stream_at_once.cc),
// or on a real GPU (tests/gpu/).
#pragma once

#include <cstdint>
#include <memory>

struct CUstream_st;

namespace spillway::kernels::cuda {

// One at a time, in one thread at a time.
class StreamAtOnce {
 public:
  StreamAtOnce();
  ~StreamAtOnce();
  StreamAtOnce(const StreamAtOnce&) = delete;
  StreamAtOnce& operator=(const StreamAtOnce&) = delete;

  CUstream_st* get() const;
  // Waits for what is enqueued: the first error there was, 0 for none.
  int finish();

  // The emulator's alone; elsewhere none can be made to fail.
  static bool can_fail();
  uint64_t launches() const;        // those refused among them
  void fail_in(uint64_t launches);  // the launch that comes after so many others is refused

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace spillway::kernels::cuda
