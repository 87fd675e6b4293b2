#include "tests/emulator/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spillway::emulator {
namespace {

std::string thread_text(uint32_t thread) { return "thread " + std::to_string(thread); }

}  // namespace

SharedMemory::SharedMemory() : bytes_(kBytesMax), units_(kBytesMax / kUnitBytes) {
  used_ = kBytesMax;
}

void SharedMemory::reset(size_t dynamic_bytes) {
  dynamic_bytes_ = dynamic_bytes;
  std::memset(bytes_.data(), 0xff, used_);
  Unit fresh;
  fresh.reader.thread = kNoThread;
  std::fill_n(units_.begin(), (used_ + kUnitBytes - 1) / kUnitBytes, fresh);
  arrays_.clear();
  used_ = (dynamic_bytes + 15) / 16 * 16;
}

size_t SharedMemory::static_array(const void* tag, size_t bytes, Defects& defects) {
  for (const StaticArray& array : arrays_) {
    if (array.tag == tag) return array.offset;
  }
  const size_t end = used_ + (bytes + 15) / 16 * 16;
  if (end - dynamic_bytes_ > kStaticBytesMax + 15 || end > kBytesMax) {
    defects.add(DefectKind::kOutOfBounds, "the block's static shared arrays take more than " +
                                              std::to_string(kStaticBytesMax) + " bytes");
    return 0;
  }
  arrays_.push_back({tag, used_});
  return std::exchange(used_, end);
}

// Whether a barrier stands between the two, seen from `after`.
bool SharedMemory::ordered(const Accessor& before, const Accessor& after) {
  if (before.thread == after.thread) return true;
  if (before.block_epoch != after.block_epoch) return true;
  return before.thread / kWarpThreads == after.thread / kWarpThreads &&
         before.warp_epoch != after.warp_epoch;
}

SharedMemory::Verdict SharedMemory::check_unit(Access access, const Unit& unit,
                                               const Accessor& who) const {
  if (unit.writer_kind == Writer::kCopy) {
    return {DefectKind::kPendingCopy,
            "touches what a copy of " + thread_text(unit.writer.thread) + " has yet to fill"};
  }
  if (access == Access::kRead && unit.writer_kind == Writer::kNobody) {
    return {DefectKind::kUninitialised, "reads what nothing has written"};
  }
  const bool both_atomic = access == Access::kAtomic && unit.writer_kind == Writer::kAtomic;
  const bool atomics_of_others = unit.several_atomics && unit.writer.block_epoch == who.block_epoch;
  if (unit.writer_kind != Writer::kNobody && !both_atomic &&
      (atomics_of_others || !ordered(unit.writer, who))) {
    const char* verb = access == Access::kRead ? "reads" : "writes";
    return {DefectKind::kRace, std::string(verb) + " what " + thread_text(unit.writer.thread) +
                                   " has written, with no barrier between"};
  }
  if (access == Access::kRead || unit.reader.thread == kNoThread) return {};
  const bool fresh = unit.reader.block_epoch == who.block_epoch;
  const bool own_warp = unit.reader.thread / kWarpThreads == who.thread / kWarpThreads;
  const bool others_of_warp =
      unit.several_readers && !(own_warp && unit.reader.warp_epoch != who.warp_epoch);
  if (!ordered(unit.reader, who) || (fresh && (unit.several_warps || others_of_warp))) {
    const std::string reader =
        unit.several_readers ? "another thread" : thread_text(unit.reader.thread);
    return {DefectKind::kRace, "writes what " + reader + " has read, with no barrier between"};
  }
  return {};
}

void SharedMemory::note_read(Unit& unit, const Accessor& who) {
  const Accessor& last = unit.reader;
  if (last.thread == kNoThread || last.block_epoch != who.block_epoch) {
    unit.several_readers = unit.several_warps = false;
  } else if (last.thread / kWarpThreads != who.thread / kWarpThreads) {
    unit.several_readers = unit.several_warps = true;
  } else if (last.warp_epoch != who.warp_epoch) {
    unit.several_readers = unit.several_warps;
  } else if (last.thread != who.thread) {
    unit.several_readers = true;
  }
  unit.reader = who;
}

SharedMemory::Verdict SharedMemory::check(Access access, const SharedRange& range,
                                          const Accessor& who) {
  if (range.first % range.alignment != 0) {
    return {DefectKind::kMisaligned, "accesses " + std::to_string(range.alignment) +
                                         " bytes at offset " + std::to_string(range.first)};
  }
  const size_t end = (range.first + range.bytes + kUnitBytes - 1) / kUnitBytes;
  for (size_t i = range.first / kUnitBytes; i < end; ++i) {
    Unit& unit = units_[i];
    Verdict verdict = check_unit(access, unit, who);
    if (access == Access::kRead) note_read(unit, who);
    if (!verdict.good()) return verdict;
    if (access != Access::kRead) {
      const bool goes_on = access == Access::kAtomic && unit.writer_kind == Writer::kAtomic &&
                           unit.writer.block_epoch == who.block_epoch;
      unit.several_atomics = goes_on && (unit.several_atomics || unit.writer.thread != who.thread);
      unit.writer = who;
      unit.writer_kind = access == Access::kWrite ? Writer::kThread : Writer::kAtomic;
    }
  }
  return {};
}

void SharedMemory::begin_copy(const SharedRange& range, const Accessor& who) {
  std::memset(at(range.first), 0xff, range.bytes);
  for (size_t i = range.first / kUnitBytes; i < (range.first + range.bytes) / kUnitBytes; ++i) {
    units_[i].writer = who;
    units_[i].writer_kind = Writer::kCopy;
  }
}

void SharedMemory::end_copy(const SharedRange& range, const Accessor& who) {
  for (size_t i = range.first / kUnitBytes; i < (range.first + range.bytes) / kUnitBytes; ++i) {
    units_[i].writer = who;
    units_[i].writer_kind = Writer::kThread;
  }
}

}  // namespace spillway::emulator
