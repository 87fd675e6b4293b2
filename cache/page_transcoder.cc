#include "cache/page_transcoder.h"

#include <algorithm>
#include <utility>

#include "io/ring.h"
#include "runtime/check.h"

namespace spillway::cache {
namespace {

size_t whole_sectors(size_t bytes) {
  return (bytes + io::kSectorBytes - 1) / io::kSectorBytes * io::kSectorBytes;
}

// What an encoded page may take at most: else reading it costs more than its size saves.
size_t worthwhile_bytes(size_t page_bytes) {
  return (page_bytes - page_bytes / 32) / io::kSectorBytes * io::kSectorBytes;
}

}  // namespace

PageTranscoder::PageTranscoder(std::span<std::byte> memory, size_t buffer_bytes, RunWork run)
    : staging_(memory, buffer_bytes),
      buffer_bytes_(buffer_bytes),
      free_(memory.size() / buffer_bytes),
      run_(std::move(run)) {
  CHECK(staging_.free_slots() > 0);
  CHECK(run_ != nullptr);
}

Task<Result<std::shared_ptr<PageTranscoder::Buffer>>> PageTranscoder::take(StopFlag& stop) {
  Result<Permit> permit = co_await free_.acquire(1, stop);
  if (!permit) co_return permit.error();
  std::shared_ptr<Staging::Slot> slot = staging_.take();
  CHECK(slot != nullptr);
  co_return std::make_shared<Buffer>(std::move(*permit), std::move(slot), buffer_bytes_);
}

std::shared_ptr<PageTranscoder::Buffer> PageTranscoder::take_now() {
  std::optional<Permit> permit = free_.try_acquire(1);
  if (!permit) return nullptr;
  std::shared_ptr<Staging::Slot> slot = staging_.take();
  CHECK(slot != nullptr);
  return std::make_shared<Buffer>(std::move(*permit), std::move(slot), buffer_bytes_);
}

std::unique_ptr<kernels::PageCoder> PageTranscoder::borrow_coder() {
  if (coders_.empty()) return std::make_unique<kernels::PageCoder>();
  std::unique_ptr<kernels::PageCoder> coder = std::move(coders_.back());
  coders_.pop_back();
  return coder;
}

Task<uint32_t> PageTranscoder::encode(kernels::PageCodec codec, std::span<const std::byte> page,
                                      std::shared_ptr<Buffer> to) {
  std::unique_ptr<kernels::PageCoder> coder = borrow_coder();
  const std::span<std::byte> room = to->bytes().first(worthwhile_bytes(page.size()));
  size_t encoded = 0;
  std::function<void()> work = [&] {
    encoded = coder->encode(codec, page, room);
    const size_t end = whole_sectors(encoded);
    std::fill(room.begin() + encoded, room.begin() + end, std::byte{});
  };
  const Result<> ran = co_await run_(std::move(work));
  coders_.push_back(std::move(coder));
  co_return ran ? static_cast<uint32_t>(encoded) : 0;
}

Task<Result<>> PageTranscoder::decode(kernels::PageCodec codec, std::shared_ptr<Buffer> from,
                                      uint32_t encoded_bytes, std::span<std::byte> page,
                                      Fill fill) {
  CHECK(encoded_bytes <= from->bytes().size());
  std::unique_ptr<kernels::PageCoder> coder = borrow_coder();
  const std::span<std::byte> encoded = from->bytes().first(encoded_bytes);
  bool good = false;
  std::function<void()> work = [&] {
    good = (fill == nullptr || fill(encoded)) && coder->decode(codec, encoded, page);
  };
  const Result<> ran = co_await run_(std::move(work));
  coders_.push_back(std::move(coder));
  if (!ran) co_return ran.error();
  if (!good) co_return Error{ErrorCode::kCorrupt, "a page's encoded bytes do not decode"};
  co_return Result<>();
}

}  // namespace spillway::cache
