// The seam between the engine and what stores bytes: files, and reads and writes of them that
// coroutines await. uring_ring.h drives io_uring, thread_ring.h a few threads with pread and
// pwrite, and the simulated disk of the tests plugs in here too.
//
// Ownership: the memory of a transfer belongs to the *operation* until the kernel has ended it, not
// to the coroutine that waits. Whoever stops waiting (deadline, stop) gets an answer at once; the
// operation goes on, and `owner`, which keeps the memory and whatever pins it, is let go when the
// operation has really ended (cases S7, K5). Owners die on the engine's thread.
//
// Threads: every call, and every resumption, on the engine's thread. Bound: as many operations as
// the ring has entries; further ones wait inside the ring in the order they came, reads first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/clock.h"
#include "runtime/result.h"
#include "runtime/stop.h"
#include "runtime/task.h"

namespace spillway::io {

// Offsets, lengths and addresses of transfers are multiples of this: what O_DIRECT asks at most.
inline constexpr size_t kSectorBytes = 4096;

// An open file. It is closed when its last owner, operations included, lets go of it.
class File {
 public:
  virtual ~File() = default;
  virtual uint64_t size() const = 0;  // bytes
  // Makes the file `bytes` long with its blocks reserved, so that later writes inside it cannot run
  // out of space. Blocks the caller; start-up only. kResourceExhausted when the disk is too full.
  virtual Result<> allocate(uint64_t bytes) = 0;
  virtual bool direct() const = 0;  // O_DIRECT; false where the file system refuses it
};

struct OpenOptions {
  bool create = false;  // with mode 0600, if it is not there
  // Taken for this process alone. kUnavailable, naming the owner's pid, when another has it and
  // keeps it for a second (S12).
  bool lock = false;
};

struct Transfer {
  std::shared_ptr<File> file;
  uint64_t offset = 0;          // in the file
  std::span<std::byte> memory;  // read into, or written from
  std::shared_ptr<void> owner;  // of the memory and its pins; may be null if both outlive the ring
  Clock::TimePoint deadline = Clock::TimePoint::max();
};

struct RingStats {
  uint64_t reads = 0, writes = 0, syncs = 0;  // ended, whether or not anyone still waited
  uint64_t read_bytes = 0, written_bytes = 0;
  uint64_t errors = 0;     // operations that the system failed
  uint64_t abandoned = 0;  // whose waiter had left before they ended
  uint32_t in_flight = 0;  // started and not ended, the abandoned ones included
  uint32_t queued = 0;     // waiting for an entry
};

class Ring {
 public:
  virtual ~Ring() = default;  // REQUIRES: drained, and its files closed

  // Management calls block and are for start-up and tools. Errors are kIo with the path in the
  // message, kNotFound for a file that is not there, or as OpenOptions says.
  virtual Result<std::shared_ptr<File>> open(const std::string& path, OpenOptions options) = 0;
  virtual Result<> rename(const std::string& from, const std::string& to) = 0;

  // Transfers all of `memory`: short transfers are continued, EINTR and EAGAIN retried a bounded
  // number of times (case S6). kCorrupt: the file ends before; kResourceExhausted: no space; kIo:
  // the system said no; kDeadlineExceeded and kCancelled: nobody waits for it any more.
  virtual Task<Result<>> read(Transfer transfer, StopFlag& stop) = 0;
  virtual Task<Result<>> write(Transfer transfer, StopFlag& stop) = 0;
  // What was written before this call, as far as its write has returned, survives a crash. Of the
  // transfer only file, owner and deadline count.
  virtual Task<Result<>> sync(Transfer of, StopFlag& stop) = 0;

  // Memory that later transfers will mostly lie in, at most 1 GiB a piece. Kept for the ring's
  // life, or until it is forgotten. An error (RLIMIT_MEMLOCK, case S16) costs speed only.
  virtual Result<> register_memory(std::span<std::byte> memory) = 0;
  // Before memory is freed of which pieces were registered, all of them in `memory`: what is mapped
  // there later is other memory at the same address.
  virtual void forget_memory(std::span<const std::byte> memory) = 0;

  // Suspends until no operation is in flight.
  virtual Task<> drain() = 0;

  virtual RingStats stats() const = 0;
  // For the start-up line: "io_uring", "4 threads with pread and pwrite (io_uring_setup was
  // refused)"
  virtual std::string description() const = 0;
};

// sync(), however long it takes.
inline Task<Result<>> sync_file(Ring& ring, std::shared_ptr<File> file) {
  StopFlag never;
  Transfer of;
  of.file = std::move(file);
  co_return co_await ring.sync(std::move(of), never);
}

}  // namespace spillway::io
