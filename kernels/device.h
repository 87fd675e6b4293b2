// The seam between the engine and what computes: memory, in-order streams, events, async copies.
// The CPU device (cpu_device.h) and a GPU (cuda/cuda_device.h) implement it; the simulation plugs
// in here too.
//
// Ordering: operations on one stream run in order; across streams only wait() orders.
// Ownership: memory named by an enqueued operation belongs to the operation until an event recorded
// after it has completed, even if whoever awaited it was cancelled.
// Threads: all calls come from the engine thread. Events complete on the engine's executor.
// Failure: a device may end while it runs (failure()). It then does nothing more: no operation runs
// any longer, what is enqueued is dropped, and every event is done, so that whoever waits goes on
// and looks. What its operations were to write is of no use; memory that allocate_host() gave, and
// what else is no device's, is as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/result.h"
#include "runtime/task.h"

namespace spillway::kernels {

// The workers that run one launch together. A launch is called once per worker.
class Team {
 public:
  virtual ~Team() = default;
  virtual uint32_t index() const = 0;  // this worker, 0 .. count-1
  virtual uint32_t count() const = 0;
  // Returns when every worker of the launch has arrived. Spins briefly, then sleeps.
  virtual void barrier() = 0;
};

using Launch = std::function<void(Team&)>;

// A point in a stream. Reusable: record() again after it completed. Must outlive its completion.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;  // what was recorded last has run; true before any record
  // Suspends until done. Not cancellable: the owner of memory awaits it (see Ownership).
  virtual Task<> wait() = 0;
};

// How far something has come that no stream does, such as a read from disk: a level that the engine
// raises and streams wait for. (On a GPU: a pinned word, and cuStreamWaitValue32 with GEQ.) It may
// die before what waits for it only once it is open for that.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void raise(uint32_t level) = 0;  // to this or what it is, whichever is higher
  // What should come will not: it is open for every level, and what runs behind it makes nothing of
  // use. For good.
  virtual void abandon() = 0;
  // From any thread. What runs behind the gate sees true if that was what opened it.
  virtual bool abandoned() const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void launch(Launch work) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;  // later operations here run after `event`
  virtual void wait(const Gate& gate, uint32_t level) = 0;  // after it has reached this level
};

struct DeviceMemory {  // owns `bytes` at `data`, aligned to 4 KiB, zeroed
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> owner;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Result<DeviceMemory> allocate(size_t bytes) = 0;
  // Host memory that the device's streams copy to and from without a detour: pinned, where the
  // device has memory of its own.
  virtual Result<DeviceMemory> allocate_host(size_t bytes) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Gate> make_gate() = 0;  // REQUIRES: has_gates()
  virtual Stream& compute() = 0;
  virtual Stream& copy_in() = 0;
  virtual Stream& copy_out() = 0;
  virtual std::string description() const = 0;  // "cpu avx512vnni, 2 threads"
  // Whether host code, and a disk that reads for it, may touch what allocate() gives. Where not,
  // all that goes there and comes from there is copied by streams, from and to allocate_host()'s
  // memory.
  virtual bool host_reaches_memory() const { return true; }
  // Whether its streams can wait for what no stream does. Without it nothing runs behind a gate: a
  // prefix is there before its suffix is computed. The same for all of a device's life.
  virtual bool has_gates() const { return true; }
  // Why the device has ended; null while it works. Look after an event that was awaited: this
  // changes when an operation is enqueued and when one is awaited, at no other time. For good.
  virtual const Error* failure() const { return nullptr; }
};

}  // namespace spillway::kernels
