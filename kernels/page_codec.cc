#include "kernels/page_codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/byte_planes.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

constexpr size_t kPieceNumbers = 32 * 1024;  // part of the format

// The quickest level that entropy codes, told to look for little else: with its own 13 bits and 5
// bytes it finds many short repeats in bf16 exponents, which take longer to tell of than to code
// (measured: 2% more bytes, half the speed).
constexpr int kLevel = 1;
constexpr int kHashBits = 6;
constexpr int kRepeatBytesMin = 7;

size_t pieces_of(size_t numbers) { return (numbers + kPieceNumbers - 1) / kPieceNumbers; }

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

struct PageCoder::Workspace {
  std::unique_ptr<ZSTD_CCtx, FreeContext> encoder;
  std::unique_ptr<ZSTD_DCtx, FreeContext> decoder;
  std::array<std::byte, kPieceNumbers> upper;

  size_t encode_planes(std::span<const std::byte> page, std::span<std::byte> to);
  bool decode_planes(std::span<const std::byte> encoded, std::span<std::byte> page);
};

PageCoder::PageCoder() = default;
PageCoder::~PageCoder() = default;
PageCoder::PageCoder(PageCoder&&) noexcept = default;
PageCoder& PageCoder::operator=(PageCoder&&) noexcept = default;

std::optional<PageCodec> page_codec_of(uint32_t number) {
  switch (static_cast<PageCodec>(number)) {
    case PageCodec::kIdentity:
    case PageCodec::kPlanes:
      return static_cast<PageCodec>(number);
  }
  return std::nullopt;
}

std::string_view page_codec_name(PageCodec codec) {
  return codec == PageCodec::kPlanes ? "planes" : "identity";
}

bool is_lossless(PageCodec codec) {
  return codec == PageCodec::kIdentity || codec == PageCodec::kPlanes;
}

bool suits(PageCodec codec, KvType type) {
  return codec != PageCodec::kPlanes || kv_type_bytes(type) == 2;
}

size_t likely_bytes(PageCodec codec, KvType type, size_t page_bytes) {
  if (codec == PageCodec::kIdentity || !suits(codec, type)) return page_bytes;
  // The larger shares of those measured.
  const double share = type == KvType::kBf16 ? 0.70 : 0.885;
  return static_cast<size_t>(share * static_cast<double>(page_bytes));
}

std::string fingerprint_of_codec(PageCodec codec) {
  return is_lossless(codec) ? "" : "+" + std::string(page_codec_name(codec));
}

size_t PageCoder::encode(PageCodec codec, std::span<const std::byte> page,
                         std::span<std::byte> to) {
  CHECK(page.size() % 2 == 0);
  if (codec == PageCodec::kIdentity) {
    if (to.size() < page.size()) return 0;
    std::copy(page.begin(), page.end(), to.begin());
    return page.size();
  }
  if (workspace_ == nullptr) workspace_ = std::make_unique<Workspace>();
  return workspace_->encode_planes(page, to);
}

bool PageCoder::decode(PageCodec codec, std::span<const std::byte> encoded,
                       std::span<std::byte> page) {
  CHECK(page.size() % 2 == 0);
  if (codec == PageCodec::kIdentity) {
    if (encoded.size() != page.size()) return false;
    std::copy(encoded.begin(), encoded.end(), page.begin());
    return true;
  }
  if (workspace_ == nullptr) workspace_ = std::make_unique<Workspace>();
  return workspace_->decode_planes(encoded, page);
}

size_t PageCoder::Workspace::encode_planes(std::span<const std::byte> page,
                                           std::span<std::byte> to) {
  if (encoder == nullptr) {
    encoder.reset(ZSTD_createCCtx());
    CHECK(encoder != nullptr);
    for (const auto& [parameter, value] :
         {std::pair(ZSTD_c_compressionLevel, kLevel), std::pair(ZSTD_c_hashLog, kHashBits),
          std::pair(ZSTD_c_minMatch, kRepeatBytesMin)}) {
      CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(encoder.get(), parameter, value)));
    }
  }
  const size_t numbers = page.size() / 2;
  const size_t sizes_bytes = pieces_of(numbers) * sizeof(uint32_t);
  size_t at = sizes_bytes + numbers;
  if (to.size() < at) return 0;
  std::byte* const lower = to.data() + sizes_bytes;
  for (size_t piece = 0; piece < pieces_of(numbers); ++piece) {
    const size_t begin = piece * kPieceNumbers;
    const size_t count = std::min(kPieceNumbers, numbers - begin);
    split_planes(page.data() + 2 * begin, count, upper.data(), lower + begin);
    const size_t room = to.size() - at;
    size_t coded = ZSTD_compress2(encoder.get(), to.data() + at, std::min(room, count - 1),
                                  upper.data(), count);
    if (ZSTD_isError(coded)) {  // it would not be smaller, or there is no room
      if (room < count) return 0;
      std::copy_n(upper.data(), count, to.data() + at);
      coded = count;
    }
    const auto bytes = static_cast<uint32_t>(coded);
    std::memcpy(to.data() + piece * sizeof bytes, &bytes, sizeof bytes);
    at += coded;
  }
  return at;
}

bool PageCoder::Workspace::decode_planes(std::span<const std::byte> encoded,
                                         std::span<std::byte> page) {
  if (decoder == nullptr) {
    decoder.reset(ZSTD_createDCtx());
    CHECK(decoder != nullptr);
  }
  const size_t numbers = page.size() / 2;
  const size_t sizes_bytes = pieces_of(numbers) * sizeof(uint32_t);
  size_t at = sizes_bytes + numbers;
  if (encoded.size() < at) return false;
  const std::byte* const lower = encoded.data() + sizes_bytes;
  for (size_t piece = 0; piece < pieces_of(numbers); ++piece) {
    const size_t begin = piece * kPieceNumbers;
    const size_t count = std::min(kPieceNumbers, numbers - begin);
    uint32_t bytes;
    std::memcpy(&bytes, encoded.data() + piece * sizeof bytes, sizeof bytes);
    if (bytes > encoded.size() - at) return false;
    const std::byte* plane = encoded.data() + at;
    if (bytes != count) {
      const size_t decoded = ZSTD_decompressDCtx(decoder.get(), upper.data(), count, plane, bytes);
      if (ZSTD_isError(decoded) || decoded != count) return false;
      plane = upper.data();
    }
    join_planes(plane, lower + begin, count, page.data() + 2 * begin);
    at += bytes;
  }
  return at == encoded.size();
}

}  // namespace spillway::kernels
