// Counts units (bytes, pages, slots) of something bounded. First come, first served: a large
// request at the front is not overtaken by small ones, so nobody starves.
//
// At the bound the acquiring coroutine waits. Thread: the engine's alone.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/intrusive_list.h"
#include "runtime/result.h"
#include "runtime/stop.h"
#include "runtime/suspend.h"
#include "runtime/task.h"

namespace spillway {

class Semaphore;

// Units held; given back when it dies. Must not outlive its Semaphore.
class Permit {
 public:
  Permit() = default;
  Permit(Permit&& other) noexcept
      : semaphore_(std::exchange(other.semaphore_, nullptr)),
        units_(std::exchange(other.units_, 0)) {}
  Permit& operator=(Permit&& other) noexcept {
    if (this != &other) {
      release();
      semaphore_ = std::exchange(other.semaphore_, nullptr);
      units_ = std::exchange(other.units_, 0);
    }
    return *this;
  }
  ~Permit() { release(); }

  uint64_t units() const { return units_; }
  // Gives back all, or down to `units` (REQUIRES: units <= units()).
  void release();
  void shrink_to(uint64_t units);
  // Takes `units` of these into a permit of their own. REQUIRES: units <= units().
  Permit split(uint64_t units);

 private:
  friend class Semaphore;
  Permit(Semaphore& semaphore, uint64_t units) : semaphore_(&semaphore), units_(units) {}
  Semaphore* semaphore_ = nullptr;
  uint64_t units_ = 0;
};

class Semaphore {
 public:
  explicit Semaphore(uint64_t capacity) : capacity_(capacity), available_(capacity) {}
  // REQUIRES: every permit was given back and nobody waits.
  ~Semaphore();
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  // Suspends until `units` are free and all who came before are served. kCancelled when `stop`
  // stops first; what was not yet granted then is not held. REQUIRES: units <= capacity().
  Task<Result<Permit>> acquire(uint64_t units, StopFlag& stop);
  // Nothing when the units are not free or somebody waits.
  std::optional<Permit> try_acquire(uint64_t units);

  // From now on no more than so many units are out at a time, but for one request that is larger.
  void set_limit(uint64_t units);

  uint64_t capacity() const { return capacity_; }
  uint64_t available() const { return available_; }  // of the capacity, whatever the limit
  bool has_waiters() const { return !waiters_.empty(); }

 private:
  friend class Permit;
  struct AcquireOp;
  struct Waiter : ListNode<Waiter> {};
  void release(uint64_t units);
  void serve();
  bool has_room(uint64_t units) const;

  const uint64_t capacity_;
  uint64_t limit_ = capacity_;
  uint64_t available_;
  IntrusiveList<Waiter> waiters_;
};

}  // namespace spillway
