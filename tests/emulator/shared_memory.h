// A block's shared memory with, beside each two bytes, who touched them last: what it takes to see
// that two threads touch the same place with no barrier between them.
//
// Order: a block's barrier orders all before it to all after; a warp's barrier does so within the
// warp. Threads of one warp run in any order between barriers, as on a GPU since Volta.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/cuda/launch_shape.h"
#include "tests/emulator/defects.h"

namespace spillway::emulator {

inline constexpr uint32_t kWarpThreads = 32;

// Who accesses, and after how many barriers of its block and warp.
struct Accessor {
  uint32_t thread = 0;
  uint32_t block_epoch = 0;
  uint32_t warp_epoch = 0;
};

enum class Access : uint8_t { kRead, kWrite, kAtomic };

struct SharedRange {
  size_t first = 0;  // byte offset in the block's shared memory
  size_t bytes = 0;
  size_t alignment = 1;
};

class SharedMemory {
 public:
  // A block's static arrays on every GPU, and with dynamic memory on the least (launch_shape.h).
  static constexpr size_t kStaticBytesMax = 48 * 1024;
  static constexpr size_t kBytesMax = kStaticBytesMax + kernels::cuda::kDynamicSharedBytesMax;
  static constexpr size_t kUnitBytes = 2;  // the shadow's grain: no smaller type is shared

  SharedMemory();

  // Forgets all and poisons: every byte 0xff, a NaN in every floating point type.
  void reset(size_t dynamic_bytes);

  // The array that `tag` stands for, the same for all threads of the block: made by the first that
  // asks. Returns its offset, or records kOutOfBounds and returns 0 where no room is left.
  size_t static_array(const void* tag, size_t bytes, Defects& defects);
  size_t dynamic_bytes() const { return dynamic_bytes_; }
  std::byte* at(size_t offset) { return bytes_.data() + offset; }

  // Records what is wrong with the access; "" if nothing.
  struct Verdict {
    DefectKind kind = DefectKind::kRace;
    std::string text;
    bool good() const { return text.empty(); }
  };
  Verdict check(Access access, const SharedRange& range, const Accessor& who);

  // An asynchronous copy into the range has been issued: nobody may touch it. Poisons it.
  void begin_copy(const SharedRange& range, const Accessor& who);
  // It has landed: from now on it counts as written by the thread that waited.
  void end_copy(const SharedRange& range, const Accessor& who);

 private:
  enum class Writer : uint8_t { kNobody, kThread, kAtomic, kCopy };
  struct Unit {
    Writer writer_kind = Writer::kNobody;
    bool several_atomics = false;  // of different threads, in the epoch of `writer`
    bool several_readers = false;  // in the epochs of `reader`
    bool several_warps = false;    // read in reader.block_epoch
    Accessor writer;
    Accessor reader;  // the latest; thread kNoThread: none
  };
  static constexpr uint32_t kNoThread = 0xffffffff;

  Verdict check_unit(Access access, const Unit& unit, const Accessor& who) const;
  static void note_read(Unit& unit, const Accessor& who);
  static bool ordered(const Accessor& before, const Accessor& after);

  struct StaticArray {
    const void* tag;
    size_t offset;
  };
  std::vector<std::byte> bytes_;
  std::vector<Unit> units_;
  std::vector<StaticArray> arrays_;
  size_t dynamic_bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace spillway::emulator
