#include "kernels/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "kernels/half.h"
#include "kernels/tensor_type.h"

namespace spillway::kernels {
namespace {

struct Record {
  TensorType type;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

template <class T>
T take(const char*& from) {
  T out;
  std::memcpy(&out, from, sizeof out);
  from += sizeof out;
  return out;
}

// tests/data/dequantize.bin is written by make_dequantize_data.py, which documents its format.
std::vector<Record> read_records() {
  std::ifstream file("tests/data/dequantize.bin", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Record> out;
  for (const char* at = bytes.data(); at < bytes.data() + bytes.size();) {
    Record record{tensor_type_from_id(take<uint32_t>(at)).value(), {}, {}};
    record.values.resize(take<uint32_t>(at));
    record.blocks.resize(take<uint32_t>(at));
    std::memcpy(record.blocks.data(), at, record.blocks.size());
    at += record.blocks.size();
    std::memcpy(record.values.data(), at, record.values.size() * sizeof(float));
    at += record.values.size() * sizeof(float);
    out.push_back(std::move(record));
  }
  return out;
}

TEST(DequantizeTest, every_type_gives_the_values_of_the_gguf_package) {
  std::set<TensorType> seen;
  for (const Record& record : read_records()) {
    SCOPED_TRACE(tensor_type_name(record.type));
    seen.insert(record.type);
    ASSERT_EQ(row_bytes(record.type, record.values.size()), record.blocks.size());
    std::vector<float> ours(record.values.size() + 1, 7.0f);
    dequantize_row(record.type, record.blocks.data(), ours.data(), record.values.size());
    for (size_t i = 0; i < record.values.size(); ++i) {
      // -0 and 0 may differ where the package subtracts in another way.
      ASSERT_EQ(ours[i], record.values[i]) << "element " << i;
    }
    EXPECT_EQ(ours.back(), 7.0f) << "wrote past the end";
  }
  EXPECT_EQ(seen.size(), std::size(kTensorTypes));
}

TEST(DequantizeTest, no_element_writes_nothing) {
  for (const TensorType type : kTensorTypes) {
    float untouched = 7.0f;
    dequantize_row(type, nullptr, &untouched, 0);
    EXPECT_EQ(untouched, 7.0f);
  }
}

TEST(TensorTypeTest, unsupported_ids_have_names_for_messages) {
  EXPECT_FALSE(tensor_type_from_id(16).has_value());
  EXPECT_EQ(tensor_type_name(16), "IQ2_XXS");
  EXPECT_EQ(tensor_type_name(39), "MXFP4");
  EXPECT_EQ(tensor_type_name(42), "Q2_0");
  EXPECT_EQ(tensor_type_name(999), "type 999");
  EXPECT_EQ(tensor_type_name(TensorType::kIq4Nl), "IQ4_NL");
  EXPECT_EQ(tensor_type_name(TensorType::kBf16), "BF16");
}

TEST(HalfTest, every_f16_survives_the_way_to_f32_and_back) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), bits);
  }
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7e01)));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
}

TEST(HalfTest, rounding_is_to_nearest_and_to_even_on_ties) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double below = f16_to_f32(static_cast<uint16_t>(bits));
    const double above = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const uint32_t even = bits + (bits & 1);
    const float middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(f32_to_f16(middle), even) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
}

TEST(HalfTest, bf16_rounds_to_nearest_even) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace spillway::kernels
