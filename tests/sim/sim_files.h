// The files of a simulated machine: what outlives its processes and, in part, its power cuts.
//
// Each 512-byte sector has the bytes that are on the medium and those that a read gives; they
// differ where a write has not been flushed. An overwritten sector may or may not have reached the
// medium in between. Names, renames and lengths are durable at once, as io/ makes them.
//
// One thread, no wall clock; every choice comes from the Prng that is passed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/prng.h"
#include "runtime/result.h"

namespace spillway::sim {

inline constexpr size_t kTearBytes = 512;  // what a disk writes whole

class SimImage {
 public:
  uint64_t size() const { return size_; }
  // Keeps what is inside; new bytes are zero.
  void resize(uint64_t bytes);

  // Both may go beyond the end: a read gives what there is and its length, a write extends.
  size_t read(uint64_t offset, std::span<std::byte> to) const;
  // REQUIRES: offset and length are multiples of kTearBytes.
  void write(uint64_t offset, std::span<const std::byte> from, Prng& prng);
  // Of the medium and of what a read gives: bit rot.
  void flip_bit(uint64_t offset, unsigned bit);

  // The unflushed sectors as of now; flush() makes these durable, later ones it may leave.
  std::vector<uint64_t> unflushed() const;
  void flush(const std::vector<uint64_t>& sectors);
  // A flush that fails: each sector reaches the medium or not, and those that did not are lost by
  // the next power cut whatever is flushed later, unless they are written again (fsync on Linux).
  void fail_flush(const std::vector<uint64_t>& sectors, Prng& prng);
  // Each unflushed sector survives with this chance.
  void cut_power(double survive, Prng& prng);

 private:
  static constexpr size_t kBlockBytes = 4096;
  static constexpr size_t kBlockSectors = kBlockBytes / kTearBytes;
  struct Block {  // absent: zeros
    std::byte now[kBlockBytes]{};
    std::byte medium[kBlockBytes]{};
    uint8_t unflushed = 0;  // a bit per sector
    uint8_t lost = 0;       // differs from the medium and no flush will change that
  };
  Block& block(uint64_t index);
  void settle(uint64_t sector, bool reaches_medium);
  void forget_clean_blocks();

  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<uint64_t> dirty_blocks_;  // that may have unflushed or lost sectors
  uint64_t size_ = 0;
};

class SimFiles {
 public:
  // Of all files together; allocate() and extending writes beyond it find the disk full.
  uint64_t capacity_bytes = UINT64_MAX;

  // Null when there is none.
  std::shared_ptr<SimImage> find(const std::string& path) const;
  std::shared_ptr<SimImage> create(const std::string& path);
  bool rename(const std::string& from, const std::string& to);  // false: `from` is not there
  void remove(const std::string& path) { files_.erase(path); }
  const std::map<std::string, std::shared_ptr<SimImage>>& all() const { return files_; }
  uint64_t used_bytes() const;

  // Which process has a file to itself; 0 for none.
  std::map<const SimImage*, uint32_t> locks;
  uint32_t next_pid = 100;

 private:
  std::map<std::string, std::shared_ptr<SimImage>> files_;
};

}  // namespace spillway::sim
