#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/model/gguf_writer.h"

namespace spillway::model {
namespace {

using kernels::TensorType;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32Id = 0, kQ4_0Id = 2, kIq2XxsId = 16;

Result<GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "test.gguf");
}

std::string message(const std::string& bytes) {
  auto file = parse(bytes);
  return file ? "no error" : file.error().message;
}

std::string temporary_path(const std::string& name) {
  return testing::TempDir() + "spillway_" + std::to_string(::getpid()) + "_" + name;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

GgufWriter sample() {
  GgufWriter writer;
  writer.string("general.architecture", "llama")
      .u32("llama.block_count", 2)
      .f32("eps", 0.5f)
      .value("flag", GgufType::kBool, uint8_t{1})
      .value("big", GgufType::kU64, uint64_t{1} << 40)
      .value("negative", GgufType::kI8, int8_t{-1})
      .value("small", GgufType::kU8, uint8_t{7})
      .value("double", GgufType::kF64, 0.25)
      .strings("names", {"a", "", "ccc"})
      .array<float>("floats", GgufType::kF32, {1.5f, -2.0f}, 2)
      .array<int16_t>("ints", GgufType::kI16, {-3, 9}, 2)
      .tensor("b", {8, 2}, kF32Id, 64)
      .tensor("a", {32}, kQ4_0Id, 0)
      .data_bytes(128);
  return writer;
}

TEST(Gguf, reads_values_and_tensors_of_both_versions) {
  for (uint32_t version : {2u, 3u}) {
    GgufWriter writer = sample();
    writer.version = version;
    const std::string bytes = writer.bytes();
    auto file = parse(bytes);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(*file->get_string("general.architecture"), "llama");
    EXPECT_EQ(*file->get_u32("llama.block_count"), 2u);
    EXPECT_EQ(*file->get_u32("small"), 7u);
    EXPECT_EQ(*file->get_f32("eps"), 0.5f);
    EXPECT_EQ(*file->get_f32("double"), 0.25f);
    EXPECT_EQ(*file->get_f32("small"), 7.0f);
    EXPECT_TRUE(*file->get_bool("flag"));
    EXPECT_THAT(*file->get_strings("names"), ElementsAre("a", "", "ccc"));
    EXPECT_THAT(*file->get_floats("floats"), ElementsAre(1.5f, -2.0f));
    EXPECT_THAT(*file->get_ints("ints"), ElementsAre(-3, 9));
    EXPECT_EQ(*file->get_u32_or("absent", 5), 5u);
    EXPECT_EQ(*file->get_string_or("absent", "x"), "x");
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* b = file->tensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->type, TensorType::kF32);
    EXPECT_EQ(b->elements(), 16u);
    EXPECT_EQ(b->data.size(), 64u);
    EXPECT_EQ(reinterpret_cast<const char*>(b->data.data() + b->data.size()),
              bytes.data() + bytes.size());
    EXPECT_EQ(file->tensor("a")->data.size(), 18u);
    EXPECT_EQ(file->tensor("c"), nullptr);
  }
}

TEST(Gguf, wrong_types_and_ranges_name_the_key) {  // case M1
  const std::string bytes = sample().bytes();
  auto file = parse(bytes);
  ASSERT_TRUE(file);
  EXPECT_THAT(file->get_u32("big").error().message, HasSubstr("'big' is out of range"));
  EXPECT_THAT(file->get_u32("negative").error().message, HasSubstr("'negative' is out of range"));
  EXPECT_THAT(file->get_u32("eps").error().message, HasSubstr("'eps' is f32; an integer"));
  EXPECT_THAT(file->get_u32("names").error().message, HasSubstr("'names' is array of string"));
  EXPECT_THAT(file->get_u32("absent").error().message, HasSubstr("'absent' is missing"));
  EXPECT_THAT(file->get_u32_or("flag", 1).error().message, HasSubstr("'flag' is bool"));
  EXPECT_THAT(file->get_f32("general.architecture").error().message, HasSubstr("is string"));
  EXPECT_THAT(file->get_bool("small").error().message, HasSubstr("is u8; a bool"));
  EXPECT_THAT(file->get_string("small").error().message, HasSubstr("is u8; a string"));
  EXPECT_THAT(file->get_strings("floats").error().message, HasSubstr("array of f32"));
  EXPECT_THAT(file->get_floats("names").error().message, HasSubstr("array of string"));
  EXPECT_THAT(file->get_ints("floats").error().message, HasSubstr("array of f32"));
  EXPECT_THAT(file->get_ints("eps").error().message, HasSubstr("is f32; an array"));
}

TEST(Gguf, numbers_that_are_not_finite_are_refused) {
  const std::string bytes =
      GgufWriter().f32("eps", std::numeric_limits<float>::quiet_NaN()).bytes();
  EXPECT_THAT(parse(bytes)->get_f32("eps").error().message, HasSubstr("'eps' is not a finite"));
}

TEST(Gguf, hostile_fields_are_named) {  // case M1
  const uint64_t huge = ~uint64_t{0};
  EXPECT_THAT(message("GGML...."), HasSubstr("not a GGUF file"));
  EXPECT_THAT(message(""), HasSubstr("magic number"));
  GgufWriter old = sample();
  old.version = 1;
  EXPECT_THAT(message(old.bytes()), HasSubstr("version 1; 2 and 3"));
  old.version = 0x03000000;
  EXPECT_THAT(message(old.bytes()), HasSubstr("big-endian"));
  EXPECT_THAT(message(sample().bytes(huge, 1)), HasSubstr("the tensor count"));
  EXPECT_THAT(message(sample().bytes(1, huge)), HasSubstr("the metadata count"));
  EXPECT_THAT(message(GgufWriter().value("k", GgufType{13}, 0).bytes()), HasSubstr("unknown type"));
  EXPECT_THAT(message(GgufWriter().u32("", 0).bytes()), HasSubstr("key 0 is empty"));
  EXPECT_THAT(message(GgufWriter().u32("k", 0).u32("k", 1).bytes()),
              HasSubstr("'k' appears twice"));
  EXPECT_THAT(message(GgufWriter().array<int>("k", GgufType::kI32, {1}, huge).bytes()),
              HasSubstr("the value of 'k'"));
  EXPECT_THAT(message(GgufWriter().array<int>("k", GgufType::kI32, {1}, huge / 4 + 2).bytes()),
              HasSubstr("the value of 'k'"));
  EXPECT_THAT(message(GgufWriter().array<int>("k", GgufType::kString, {1}, huge / 8).bytes()),
              HasSubstr("the value of 'k'"));
  EXPECT_THAT(message(GgufWriter().array<uint64_t>("k", GgufType::kString, {huge}, 1).bytes()),
              HasSubstr("string 0 of the value of 'k'"));
  EXPECT_THAT(message(GgufWriter().array<int>("k", GgufType::kArray, {1}, 1).bytes()),
              HasSubstr("array of arrays"));
  EXPECT_THAT(message(GgufWriter().value("k", GgufType::kString, huge).bytes()),
              HasSubstr("the value of 'k'"));
}

std::string tensor_message(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  return message(GgufWriter().tensor("t", dims, type, offset).data_bytes(128).bytes());
}

TEST(Gguf, hostile_tensors_are_named) {  // case M1
  const uint64_t big = uint64_t{1} << 42;
  EXPECT_EQ(tensor_message({32}, kF32Id, 0), "no error");
  EXPECT_THAT(tensor_message({0}, kF32Id, 0), HasSubstr("'t': dimension 0 is 0"));
  EXPECT_THAT(tensor_message({big + 1}, kF32Id, 0), HasSubstr("'t': dimension 0"));
  EXPECT_THAT(tensor_message({big, big, big, big}, kF32Id, 0), HasSubstr("'t': dimension 1"));
  EXPECT_THAT(tensor_message({1 << 21, 1 << 22}, kF32Id, 0), HasSubstr("'t': dimension 1"));
  EXPECT_THAT(tensor_message({big}, kF32Id, 0), HasSubstr("runs past the end"));
  EXPECT_THAT(tensor_message({}, kF32Id, 0), HasSubstr("0 dimensions"));
  EXPECT_THAT(tensor_message({1, 1, 1, 1, 1}, kF32Id, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(tensor_message({33}, kF32Id, 0), HasSubstr("runs past the end"));
  EXPECT_THAT(tensor_message({32}, kF32Id, 32), HasSubstr("runs past the end"));
  EXPECT_THAT(tensor_message({1}, kF32Id, ~uint64_t{31}), HasSubstr("runs past the end"));
  EXPECT_THAT(tensor_message({1}, kF32Id, 4), HasSubstr("multiple of the alignment"));
  EXPECT_THAT(tensor_message({33}, kQ4_0Id, 0), HasSubstr("not whole blocks of 32"));
  EXPECT_THAT(tensor_message({256}, kIq2XxsId, 0), HasSubstr("tensor 't' has type IQ2_XXS"));
  EXPECT_THAT(tensor_message({256}, 12345, 0), HasSubstr("tensor 't' has type"));
  const std::string twice =
      GgufWriter().tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 32).data_bytes(64).bytes();
  EXPECT_THAT(message(twice), HasSubstr("tensor 't' appears twice"));
  for (uint32_t alignment : {0u, 3u, 4u, 48u}) {
    EXPECT_THAT(message(GgufWriter().u32("general.alignment", alignment).bytes()),
                HasSubstr("general.alignment"));
  }
  // Padding up to an alignment past the file's end leaves no room for data.
  const std::string past =
      GgufWriter().u32("general.alignment", 1u << 31).tensor("t", {1}, 0, 0).bytes();
  EXPECT_THAT(message(past), HasSubstr("runs past the end"));
}

TEST(Gguf, escapes_what_does_not_print_in_messages) {
  EXPECT_EQ(in_quotes("a\x1b[31m"), "'a\\x1b[31m'");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "'" + std::string(80, 'x') + "...'");
}

// Every prefix of a small file that holds each kind of value is refused, and says why.
TEST(Gguf, truncated_at_any_byte_is_a_clean_error) {  // case M1
  const std::string bytes = sample().bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    // A copy of its own, so that ASan sees a read past its end.
    const std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    auto file = GgufFile::parse(std::as_bytes(std::span(part)), "test.gguf");
    ASSERT_FALSE(file) << length;
    EXPECT_FALSE(file.error().message.empty());
  }
}

TEST(Gguf, any_flipped_bit_is_an_error_or_a_readable_file) {  // case M1
  const std::string bytes = sample().bytes();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    auto file = parse(damaged);
    if (!file) continue;
    for (const GgufValue& value : file->values()) {
      (void)file->get_u32(value.key);
      (void)file->get_f32(value.key);
      (void)file->get_string(value.key);
      (void)file->get_strings(value.key);
      (void)file->get_floats(value.key);
      (void)file->get_ints(value.key);
    }
    for (const GgufTensor& tensor : file->tensors()) {
      ASSERT_LE(tensor.data.size(), bytes.size());
    }
  }
}

TEST(Gguf, missing_and_empty_files_are_named) {
  EXPECT_THAT(GgufFile::open("/nonexistent/x.gguf").error().message,
              HasSubstr("/nonexistent/x.gguf: cannot open"));
  EXPECT_THAT(GgufFile::open("/").error().message, HasSubstr("not a regular file"));
  const std::string path = temporary_path("empty.gguf");
  write_file(path, "");
  EXPECT_THAT(GgufFile::open(path).error().message, HasSubstr("empty"));
  std::filesystem::remove(path);
}

std::string split_part(uint16_t number, uint16_t count, const std::string& tensor) {
  return GgufWriter()
      .value("split.no", GgufType::kU16, number)
      .value("split.count", GgufType::kU16, count)
      .value("split.tensors.count", GgufType::kI32, int32_t{2})
      .tensor(tensor, {8}, 0, 0)
      .data_bytes(32)
      .bytes();
}

TEST(Gguf, opens_all_parts_of_a_split_model) {
  const std::string stem = temporary_path("split");
  const std::string first = stem + "-00001-of-00002.gguf", second = stem + "-00002-of-00002.gguf";
  write_file(first, split_part(0, 2, "a"));
  EXPECT_THAT(GgufFile::open(first).error().message, HasSubstr(second));
  write_file(second, split_part(1, 2, "b"));
  {
    auto file = GgufFile::open(first);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors().size(), 2u);
    EXPECT_EQ(file->tensor("b")->data.size(), 32u);
    EXPECT_EQ(file->tensor("b")->data[31], std::byte{0x11});
  }
  EXPECT_THAT(GgufFile::open(second).error().message, HasSubstr("give the first"));
  write_file(second, split_part(1, 2, "a"));
  EXPECT_THAT(GgufFile::open(first).error().message, HasSubstr("'a' appears twice"));
  write_file(second, split_part(0, 2, "b"));
  EXPECT_THAT(GgufFile::open(first).error().message, HasSubstr("split.no"));
  write_file(stem + ".gguf", split_part(0, 2, "a"));
  EXPECT_THAT(GgufFile::open(stem + ".gguf").error().message, HasSubstr("-00001-of-00002.gguf"));
  for (const std::string& path : {first, second, stem + ".gguf"}) std::filesystem::remove(path);
}

TEST(GgufDeathTest, file_truncated_while_mapped_ends_with_a_line_that_names_it) {  // case M1
  const std::string path = temporary_path("shrinks.gguf");
  write_file(path, GgufWriter().tensor("t", {1 << 14}, 0, 0).data_bytes(1 << 16).bytes());
  auto touch_lost_part = [&path] {
    auto file = GgufFile::open(path);
    std::filesystem::resize_file(path, 4096);
    volatile std::byte last = file->tensor("t")->data.back();
    (void)last;
  };
  EXPECT_EXIT(touch_lost_part(), testing::ExitedWithCode(74), "shrinks.gguf became shorter");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace spillway::model
