// Codecs of KV pages: what a tier may hold in place of a page's own bytes.
//
// kPlanes is for numbers of 16 bits, f16 or bf16, and gives back the same bits. Each number is
// turned left by one bit and cut in two bytes. The upper one has the exponent (and what is left of
// eight bits), which takes few values: it is entropy coded, by zstd's Huffman coder, 32 Ki numbers
// at a time. The lower one has mantissa and sign, which are noise, and is kept as it is.
//
//   encoded page: u32 bytes of each coded piece | all lower bytes | the coded pieces
//
// A piece that coding would not make smaller is there as it is, with its full length.
// Little-endian.
//
// A codec that loses something (int8, int4) gets a number here, says so in is_lossless(), and then
// its name belongs into the fingerprint (fingerprint_of_codec()), for what is computed behind its
// pages is something else. Tiers and store know of a codec nothing but its number.
//
// Pure work on bytes, any thread; a PageCoder serves one caller at a time. What is decoded may be
// any bytes: it is the world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/paged_kv.h"

namespace spillway::kernels {

enum class PageCodec : uint32_t {  // numbers are on disk (docs/ON_DISK_FORMAT.md)
  kIdentity = 0,
  kPlanes = 1,
};

std::optional<PageCodec> page_codec_of(uint32_t number);
std::string_view page_codec_name(PageCodec codec);
bool is_lossless(PageCodec codec);
// Whether it makes anything smaller of pages of such numbers.
bool suits(PageCodec codec, KvType type);
// About how many bytes a page becomes: from pages of two models (docs/BENCHMARKS.md), for plans.
size_t likely_bytes(PageCodec codec, KvType type, size_t page_bytes);
// What a tier with this codec adds to the fingerprint of what is computed above it.
std::string fingerprint_of_codec(PageCodec codec);

class PageCoder {
 public:
  PageCoder();
  ~PageCoder();
  PageCoder(PageCoder&&) noexcept;
  PageCoder& operator=(PageCoder&&) noexcept;

  // How many bytes of `to` the encoded page takes; 0 when it takes more than there are.
  // REQUIRES: page.size() is even.
  size_t encode(PageCodec codec, std::span<const std::byte> page, std::span<std::byte> to);
  // False: `encoded` is not what encode() made of a page of this size, and `page` holds anything.
  // REQUIRES: page.size() is even.
  bool decode(PageCodec codec, std::span<const std::byte> encoded, std::span<std::byte> page);

 private:
  struct Workspace;
  std::unique_ptr<Workspace> workspace_;  // made when it is first needed: about 0.3 MiB
};

}  // namespace spillway::kernels
