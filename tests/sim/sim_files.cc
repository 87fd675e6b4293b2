#include "tests/sim/sim_files.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace spillway::sim {

void SimImage::resize(uint64_t bytes) {
  size_ = bytes;
  blocks_.resize((bytes + kBlockBytes - 1) / kBlockBytes);
  std::erase_if(dirty_blocks_, [this](uint64_t index) { return index >= blocks_.size(); });
}

SimImage::Block& SimImage::block(uint64_t index) {
  auto& found = blocks_[index];
  if (found == nullptr) found = std::make_unique<Block>();
  return *found;
}

size_t SimImage::read(uint64_t offset, std::span<std::byte> to) const {
  if (offset >= size_) return 0;
  const size_t bytes = std::min<uint64_t>(to.size(), size_ - offset);
  for (size_t done = 0; done < bytes;) {
    const uint64_t at = offset + done;
    const size_t piece = std::min(bytes - done, kBlockBytes - at % kBlockBytes);
    const Block* from = blocks_[at / kBlockBytes].get();
    if (from == nullptr) {
      std::memset(to.data() + done, 0, piece);
    } else {
      std::memcpy(to.data() + done, from->now + at % kBlockBytes, piece);
    }
    done += piece;
  }
  return bytes;
}

void SimImage::write(uint64_t offset, std::span<const std::byte> from, Prng& prng) {
  CHECK(offset % kTearBytes == 0);
  CHECK(from.size() % kTearBytes == 0);
  if (offset + from.size() > size_) resize(offset + from.size());
  for (size_t done = 0; done < from.size(); done += kTearBytes) {
    const uint64_t at = offset + done;
    Block& to = block(at / kBlockBytes);
    const size_t inside = at % kBlockBytes;
    const auto bit = static_cast<uint8_t>(1u << (inside / kTearBytes));
    if (to.unflushed == 0 && to.lost == 0) dirty_blocks_.push_back(at / kBlockBytes);
    // The version before this one may have reached the medium meanwhile.
    if ((to.unflushed & bit) != 0 && prng.below(2) == 0) {
      std::memcpy(to.medium + inside, to.now + inside, kTearBytes);
    }
    std::memcpy(to.now + inside, from.data() + done, kTearBytes);
    to.unflushed |= bit;
    to.lost &= static_cast<uint8_t>(~bit);
  }
}

void SimImage::flip_bit(uint64_t offset, unsigned bit) {
  CHECK(offset < size_);
  CHECK(bit < 8);
  Block& rotten = block(offset / kBlockBytes);
  const auto mask = static_cast<std::byte>(1u << bit);
  rotten.now[offset % kBlockBytes] ^= mask;
  rotten.medium[offset % kBlockBytes] ^= mask;
}

std::vector<uint64_t> SimImage::unflushed() const {
  std::vector<uint64_t> sectors;
  for (const uint64_t index : dirty_blocks_) {
    for (size_t i = 0; i < kBlockSectors; ++i) {
      if ((blocks_[index]->unflushed >> i & 1) != 0) sectors.push_back(index * kBlockSectors + i);
    }
  }
  return sectors;
}

void SimImage::settle(uint64_t sector, bool reaches_medium) {
  if (sector / kBlockSectors >= blocks_.size()) return;  // cut off meanwhile
  Block& of = block(sector / kBlockSectors);
  const size_t inside = sector % kBlockSectors;
  const auto bit = static_cast<uint8_t>(1u << inside);
  if ((of.unflushed & bit) == 0) return;  // another flush was quicker
  of.unflushed &= static_cast<uint8_t>(~bit);
  if (reaches_medium) {
    std::memcpy(of.medium + inside * kTearBytes, of.now + inside * kTearBytes, kTearBytes);
  } else {
    of.lost |= bit;
  }
}

void SimImage::flush(const std::vector<uint64_t>& sectors) {
  for (const uint64_t sector : sectors) settle(sector, true);
  forget_clean_blocks();
}

void SimImage::fail_flush(const std::vector<uint64_t>& sectors, Prng& prng) {
  for (const uint64_t sector : sectors) settle(sector, prng.below(2) == 0);
  forget_clean_blocks();
}

void SimImage::forget_clean_blocks() {
  std::erase_if(dirty_blocks_, [this](uint64_t index) {
    return blocks_[index]->unflushed == 0 && blocks_[index]->lost == 0;
  });
}

void SimImage::cut_power(double survive, Prng& prng) {
  for (const uint64_t index : dirty_blocks_) {
    Block& of = *blocks_[index];
    for (size_t i = 0; i < kBlockSectors; ++i) {
      const bool unflushed = (of.unflushed >> i & 1) != 0;
      const bool lost = (of.lost >> i & 1) != 0;
      if (!unflushed && !lost) continue;
      std::byte* now = of.now + i * kTearBytes;
      std::byte* medium = of.medium + i * kTearBytes;
      if (unflushed && prng.uniform() < survive) {
        std::memcpy(medium, now, kTearBytes);
      } else {
        std::memcpy(now, medium, kTearBytes);
      }
    }
    of.unflushed = of.lost = 0;
  }
  dirty_blocks_.clear();
}

std::shared_ptr<SimImage> SimFiles::find(const std::string& path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : found->second;
}

std::shared_ptr<SimImage> SimFiles::create(const std::string& path) {
  auto& image = files_[path];
  image = std::make_shared<SimImage>();
  return image;
}

bool SimFiles::rename(const std::string& from, const std::string& to) {
  const auto found = files_.find(from);
  if (found == files_.end()) return false;
  auto image = found->second;
  files_.erase(found);
  files_[to] = std::move(image);
  return true;
}

uint64_t SimFiles::used_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [path, image] : files_) bytes += image->size();
  return bytes;
}

}  // namespace spillway::sim
