// What the emulator found wrong in a kernel: things that a GPU may let pass, or answer with
// garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace spillway::emulator {

enum class DefectKind : uint8_t {
  kRace,           // two threads touch shared memory, one writes, no barrier between
  kUninitialised,  // shared memory read that nothing in the block has written
  kOutOfBounds,    // an index past the end of a shared array, or more than the block has
  kMisaligned,     // a vector access off its alignment
  kPendingCopy,    // shared memory touched that an asynchronous copy has yet to fill
  kBarrier,        // a barrier that not all threads of the block reach
  kWarp,           // a warp operation that not all lanes that it names reach
  kBadLaunch,      // a shape that no GPU takes
};

const char* defect_name(DefectKind kind);

struct Defect {
  DefectKind kind;
  std::string text;  // which thread of which block, where, and what it met
};

// The defects of one or more launches. Bounded: the first kKept are kept, all are counted.
class Defects {
 public:
  static constexpr size_t kKept = 16;

  void add(DefectKind kind, std::string text);
  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  const std::vector<Defect>& kept() const { return kept_; }
  bool has(DefectKind kind) const { return (kinds_ >> static_cast<uint32_t>(kind) & 1) != 0; }
  std::string text() const;  // one line each

 private:
  size_t count_ = 0;
  uint32_t kinds_ = 0;  // a bit each
  std::vector<Defect> kept_;
};

// "matmul.cuh:41", for the texts.
std::string site_text(const std::source_location& site);

}  // namespace spillway::emulator
