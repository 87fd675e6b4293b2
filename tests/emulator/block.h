// Runs one thread block: its threads as fibers, in an order shuffled from a seed, between barriers
// and warp exchanges. What a kernel calls (tests/emulator/cuda.h) ends up here.
//
// A block that gets stuck (a barrier or a warp operation that not all reach) is reported, and its
// threads are unwound by an exception that no kernel catches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <span>
#include <vector>

#include "kernels/cuda/launch_shape.h"
#include "tests/emulator/defects.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/shared_memory.h"

namespace spillway::emulator {

using Site = std::source_location;

// What a lane hands to the others of its warp.
struct LaneSlot {
  std::array<std::byte, 64> bytes;
};

class Block;

// One CUDA thread. All functions but the scheduler's are called by the thread itself.
class Thread {
 public:
  Thread(Block& block, uint32_t index, std::byte* stack);

  uint32_t index() const { return index_; }
  Block& block() { return block_; }
  Accessor accessor() const;

  void sync_block(const Site& site);
  // Orders shared memory within the warp; by a part of its lanes it only lets these meet.
  void sync_warp(uint32_t mask, const Site& site);

  // Hands `bytes` to the lanes of `mask` and waits until all of them have come. Slots of lanes
  // outside the mask are of no use. The span holds until the thread waits again.
  std::span<const LaneSlot, kWarpThreads> exchange(uint32_t mask, const void* data, size_t bytes,
                                                   const Site& site);

  // Asynchronous copies: issued, closed into groups, waited for until `pending` groups are left.
  struct Copy {
    size_t to;         // offset in shared memory
    const void* from;  // null: zeros
    size_t bytes;
  };
  void issue_copy(const Copy& copy, const Site& site);
  void commit_copies();
  void wait_copies(size_t pending);

  // Records an access that is out of bounds or otherwise wrong. Returns whether it may be made.
  bool check(Access access, const SharedRange& range, const Site& site);
  void report(DefectKind kind, const std::string& what, const Site& site);

 private:
  friend class Block;
  enum class Wait : uint8_t { kNothing, kBlock, kWarp, kEnded };

  void wait(Wait wait, uint32_t mask, const Site& site);

  Block& block_;
  uint32_t index_;
  Fiber fiber_;
  Wait waits_ = Wait::kEnded;
  uint32_t mask_ = 0;    // of the warp operation
  Site site_;            // of what it waits in
  bool orders_ = false;  // the warp operation is a barrier of the whole warp
  std::vector<Copy> open_copies_;
  std::vector<std::vector<Copy>> groups_;
};

class Block {
 public:
  Block();
  ~Block();

  struct Run {
    kernels::cuda::Index3 grid;
    kernels::cuda::Index3 index;
    uint32_t threads = 0;  // a multiple of kWarpThreads, at most kThreadsMax
    size_t dynamic_bytes = 0;
  };
  static constexpr uint32_t kThreadsMax = 1024;

  // Runs `body` in each thread, to its end.
  void run(const Run& run, const std::function<void()>& body, std::mt19937_64& random,
           Defects& defects);

  const Run& shape() const { return run_; }
  SharedMemory& shared() { return shared_; }
  Defects& defects() { return *defects_; }

 private:
  friend class Thread;
  struct Warp {
    uint32_t epoch = 0;
    std::array<LaneSlot, kWarpThreads> arriving;
    std::array<LaneSlot, kWarpThreads> settled;  // of the last release
  };
  struct Unwind {};  // thrown in threads of a block that is given up

  void grow(uint32_t threads);
  void run_ready(std::mt19937_64& random);
  bool all_ended() const;
  bool release();
  bool release_block();
  bool release_warp(Warp& warp, std::span<const std::unique_ptr<Thread>> lanes);
  void report_stuck();
  std::string whereabouts(const Thread& thread) const;
  void give_up();

  Run run_;
  SharedMemory shared_;
  Defects* defects_ = nullptr;
  uint32_t block_epoch_ = 0;
  bool gives_up_ = false;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<StackSlab>> stacks_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

// The emulated thread that runs now, in this OS thread. REQUIRES: one does.
Thread& this_thread();

}  // namespace spillway::emulator
