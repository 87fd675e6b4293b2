// Codecs of pages: the same bits come back, whatever they were, and what was not encoded is told.
#include "kernels/page_codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "kernels/half.h"
#include "runtime/prng.h"
#include "tests/kernels/codec_bytes.h"

namespace spillway::kernels {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::vector<uint16_t>& numbers) {
  Bytes bytes(2 * numbers.size());
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Like KV: normal numbers around a scale that changes every so often.
std::vector<uint16_t> kv_like(uint64_t seed, size_t count, bool bf16) {
  Prng rng(seed);
  std::vector<uint16_t> numbers;
  float scale = 1;
  for (size_t i = 0; i < count; ++i) {
    if (i % 512 == 0) scale = static_cast<float>(0.1 + 3 * rng.uniform());
    const double radius = std::sqrt(-2 * std::log(rng.uniform() + 1e-12));
    const auto value = scale * static_cast<float>(radius * std::cos(6.2831853 * rng.uniform()));
    numbers.push_back(bf16 ? f32_to_bf16(value) : f32_to_f16(value));
  }
  return numbers;
}

Bytes encode(PageCodec codec, const Bytes& page) {
  PageCoder coder;
  Bytes encoded(page.size() + page.size() / 4 + 1024);
  encoded.resize(coder.encode(codec, page, encoded));
  return encoded;
}

// Into memory of exactly its size, so that a sanitizer sees what is written beyond it.
bool decodes(PageCodec codec, const Bytes& encoded, Bytes& page) {
  PageCoder coder;
  return coder.decode(codec, encoded, page);
}

TEST(page_codec, numbers_on_disk_mean_what_they_did) {
  EXPECT_EQ(page_codec_of(0), PageCodec::kIdentity);
  EXPECT_EQ(page_codec_of(1), PageCodec::kPlanes);
  EXPECT_EQ(page_codec_of(2), std::nullopt);
  EXPECT_EQ(page_codec_of(~0u), std::nullopt);
  for (const PageCodec codec : {PageCodec::kIdentity, PageCodec::kPlanes}) {
    EXPECT_TRUE(is_lossless(codec));
    EXPECT_EQ(fingerprint_of_codec(codec), "");
    EXPECT_TRUE(suits(codec, KvType::kF16));
    EXPECT_TRUE(suits(codec, KvType::kBf16));
  }
  EXPECT_FALSE(suits(PageCodec::kPlanes, KvType::kF32));
  EXPECT_TRUE(suits(PageCodec::kIdentity, KvType::kF32));
}

// What version 1 of the format wrote must be read for ever (docs/ON_DISK_FORMAT.md).
TEST(page_codec, an_encoded_page_has_the_layout_that_is_documented) {
  const Bytes page = bytes_of({0x3c00, 0x8001});  // too few for the coder: both planes as they are
  const Bytes encoded = encode(PageCodec::kPlanes, page);
  // Turned left: 0x7800, 0x0003.
  const std::vector<uint8_t> expected = {2, 0, 0, 0, 0x00, 0x03, 0x78, 0x00};
  ASSERT_EQ(encoded.size(), expected.size());
  EXPECT_EQ(std::memcmp(encoded.data(), expected.data(), expected.size()), 0);
}

RC_GTEST_PROP(page_codec, any_bits_come_back, ()) {
  const auto codec = *rc::gen::element(PageCodec::kIdentity, PageCodec::kPlanes);
  const auto pattern = *rc::gen::container<std::vector<uint16_t>>(rc::gen::arbitrary<uint16_t>());
  const auto count = *rc::gen::element<size_t>(0, 1, 2, 255, 2048, 32767, 32768, 32769, 70000);
  std::vector<uint16_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back(pattern.empty() ? 0 : pattern[i % pattern.size()]);
  }
  const Bytes page = bytes_of(numbers);
  Bytes decoded(page.size(), std::byte{0xee});
  RC_ASSERT(decodes(codec, encode(codec, page), decoded));
  RC_ASSERT(decoded == page);
}

RC_GTEST_PROP(page_codec, noise_and_numbers_come_back_and_numbers_get_smaller, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto count = *rc::gen::element<size_t>(4096, 20000, 92160);
  const bool bf16 = *rc::gen::arbitrary<bool>();
  std::vector<uint16_t> numbers = kv_like(seed, count, bf16);
  Prng rng(seed);
  const bool noise = *rc::gen::arbitrary<bool>();
  for (size_t i = 0; noise && i < count; ++i) numbers[i] = static_cast<uint16_t>(rng.next());
  const Bytes page = bytes_of(numbers);
  const Bytes encoded = encode(PageCodec::kPlanes, page);
  const double ratio = static_cast<double>(encoded.size()) / static_cast<double>(page.size());
  const double most = noise ? 1.001 : bf16 ? 0.75 : 0.92;
  RC_ASSERT(ratio < most);
  Bytes decoded(page.size());
  RC_ASSERT(decodes(PageCodec::kPlanes, encoded, decoded));
  RC_ASSERT(decoded == page);
}

TEST(page_codec, every_number_there_is_comes_back) {
  std::vector<uint16_t> numbers;  // NaN with each payload, infinities, denormals, both zeros
  for (uint32_t i = 0; i < 65536; ++i) numbers.push_back(static_cast<uint16_t>(i));
  const Bytes page = bytes_of(numbers);
  Bytes decoded(page.size());
  ASSERT_TRUE(decodes(PageCodec::kPlanes, encode(PageCodec::kPlanes, page), decoded));
  EXPECT_EQ(decoded, page);
}

TEST(page_codec, one_coder_serves_pages_of_all_kinds_one_after_the_other) {
  PageCoder coder;
  for (uint64_t i = 0; i < 40; ++i) {
    const Bytes page = bytes_of(kv_like(i, 1000 * i, i % 2 == 0));
    Bytes encoded(page.size() + 1024), decoded(page.size());
    encoded.resize(coder.encode(PageCodec::kPlanes, page, encoded));
    if (!encoded.empty()) encoded[encoded.size() / 2] ^= std::byte{1};
    (void)coder.decode(PageCodec::kPlanes, encoded, decoded);
    if (!encoded.empty()) encoded[encoded.size() / 2] ^= std::byte{1};
    ASSERT_TRUE(coder.decode(PageCodec::kPlanes, encoded, decoded));
    ASSERT_EQ(decoded, page);
  }
}

TEST(page_codec, a_page_that_does_not_fit_is_not_encoded_and_nothing_is_written_beyond) {
  const Bytes page = bytes_of(kv_like(3, 40000, false));
  const size_t whole = encode(PageCodec::kPlanes, page).size();
  PageCoder coder;
  for (const size_t room : {size_t{0}, size_t{1}, size_t{11}, size_t{12}, size_t{40000},
                            size_t{40013}, size_t{60000}, whole / 2, whole - 1000, whole - 1}) {
    Bytes to(room);  // exactly: a sanitizer sees the rest
    const size_t encoded = coder.encode(PageCodec::kPlanes, page, to);
    if (encoded == 0) continue;
    // The last piece may have been left as it is, or found a little more room than it needed.
    Bytes decoded(page.size());
    to.resize(encoded);
    ASSERT_TRUE(coder.decode(PageCodec::kPlanes, to, decoded)) << room;
    EXPECT_EQ(decoded, page);
  }
  Bytes to(whole / 2);
  EXPECT_EQ(coder.encode(PageCodec::kPlanes, page, to), 0u);
  EXPECT_EQ(coder.encode(PageCodec::kIdentity, page, to), 0u);
}

TEST(page_codec, what_is_cut_off_or_longer_does_not_decode) {
  const Bytes page = bytes_of(kv_like(4, 20000, false));
  const Bytes encoded = encode(PageCodec::kPlanes, page);
  Bytes decoded(page.size());
  for (size_t size = 0; size < encoded.size(); size += 1 + size / 7) {
    const Bytes cut(encoded.begin(), encoded.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(decodes(PageCodec::kPlanes, cut, decoded)) << size;
    ASSERT_FALSE(decodes(PageCodec::kIdentity, cut, decoded)) << size;
  }
  Bytes longer = encoded;
  longer.push_back(std::byte{});
  EXPECT_FALSE(decodes(PageCodec::kPlanes, longer, decoded));
  Bytes other_size(page.size() - 2);
  EXPECT_FALSE(decodes(PageCodec::kPlanes, encoded, other_size));
  EXPECT_TRUE(decodes(PageCodec::kPlanes, encoded, decoded));
}

RC_GTEST_PROP(page_codec, damage_gives_other_bytes_or_an_error_and_nothing_else, ()) {
  Bytes encoded = encode(PageCodec::kPlanes, bytes_of(kv_like(5, 18000, true)));
  const auto edits = *rc::gen::container<std::vector<std::pair<uint32_t, uint8_t>>>(
      rc::gen::arbitrary<std::pair<uint32_t, uint8_t>>());
  for (const auto& [at, value] : edits) {
    encoded[at % (at % 3 == 0 ? 64 : encoded.size())] = static_cast<std::byte>(value);
  }
  Bytes decoded(2 * 18000);
  const bool good = decodes(PageCodec::kPlanes, encoded, decoded);
  RC_CLASSIFY(!good, "refused");
}

TEST(page_codec, the_fuzzers_seeds_are_decoded_or_refused) {
  uint64_t seeds = 0, decoded = 0;
  for (const auto& entry : std::filesystem::directory_iterator("fuzz/corpus/page_codec_fuzz")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    decoded += decode_any_bytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    ++seeds;
  }
  EXPECT_GE(seeds, 6u);
  EXPECT_GE(decoded, 2u);
  EXPECT_LT(decoded, seeds);
}

}  // namespace
}  // namespace spillway::kernels
