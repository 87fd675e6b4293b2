// What only real files show: a header of 50,000 strings damaged everywhere, and the same bits over
// more tokens than one split of attention holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>

#include "model/config.h"
#include "model/tensors.h"
#include "tests/model/golden.h"
#include "tests/model/model_cache.h"
#include "tests/model/runner_harness.h"

namespace spillway::model {
namespace {

// A copy of SmolLM2's file, and the length of its metadata and tensor index.
struct FileBytes {
  std::vector<std::byte> all;
  size_t header = 0;
};

FileBytes read_file() {
  std::ifstream stream(cached_model_path(kSmolLm2), std::ios::binary | std::ios::ate);
  FileBytes file;
  file.all.resize(static_cast<size_t>(stream.tellg()));
  stream.seekg(0).read(reinterpret_cast<char*>(file.all.data()),
                       static_cast<std::streamsize>(file.all.size()));
  file.header = file.all.size();
  const GgufFile parsed = GgufFile::parse(file.all, "smollm2").value();
  for (const GgufTensor& tensor : parsed.tensors()) {
    file.header = std::min(file.header, static_cast<size_t>(tensor.data.data() - file.all.data()));
  }
  return file;
}

// Parses exactly these bytes: a heap block of their size, so that ASan sees a read past them.
Result<GgufFile> parse_copy(std::span<const std::byte> bytes, std::vector<std::byte>& copy) {
  copy.assign(bytes.begin(), bytes.end());
  copy.shrink_to_fit();
  return GgufFile::parse(copy, "smollm2");
}

TEST(RealModel, header_truncated_anywhere_is_a_clean_error) {  // case M1
  open_cached_model(kSmolLm2);
  const FileBytes file_bytes = read_file();
  ASSERT_GT(file_bytes.header, 1u << 20);
  std::vector<std::byte> copy;
  for (size_t length = 0; length <= file_bytes.header; length += length < 65536 ? 1 : 4099) {
    auto file = parse_copy(std::span(file_bytes.all).first(length), copy);
    ASSERT_FALSE(file) << length;
    ASSERT_NE(file.error().message.find("smollm2: "), std::string::npos);
  }
}

TEST(RealModel, header_with_damaged_bits_is_an_error_or_a_model_to_refuse_or_run) {  // case M1
  open_cached_model(kSmolLm2);
  FileBytes bytes = read_file();
  std::mt19937_64 random(20240607);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    // Half of the flips fall into the first 2 KiB, where the model's description stands.
    const size_t range = i % 2 == 0 ? 2048 : bytes.header;
    std::array<size_t, 3> bits;
    for (size_t& bit : bits) bit = random() % (range * 8);
    for (size_t bit : bits) bytes.all[bit / 8] ^= std::byte{1} << (bit % 8);
    if (auto file = GgufFile::parse(bytes.all, "smollm2"); file) {
      auto config = read_model_config(*file);
      const bool usable = config && find_model_tensors(*file, *config);
      ++(usable ? accepted : refused);
    }
    for (size_t bit : bits) bytes.all[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_GT(accepted, 0);  // a changed letter of a token
  EXPECT_GT(refused, 0);   // by the model's description, not by the file's form
}

// Rows of a long prompt, whole in one step, in small steps, by two workers and in other tiles.
TEST(RealModel, long_prompts_have_the_same_bits_however_they_are_cut) {
  const GgufFile file = open_cached_model(kSmolLm2);
  const auto cases = read_golden("tests/data/golden/smollm2.gguf");
  const GoldenCase& golden = *std::find_if(cases.begin(), cases.end(),
                                           [](const GoldenCase& c) { return c.name == "long1k"; });
  const auto tokens = std::span(golden.tokens).first(700);
  auto scores = [&](const HarnessOptions& options, const std::vector<size_t>& cuts) {
    RunnerHarness harness(file, options);
    HarnessSequence sequence = harness.new_sequence();
    std::vector<TokenLogprob> scored;
    size_t at = 0;
    for (size_t i = 0; at < tokens.size(); ++i) {
      const size_t count = std::min(cuts[i % cuts.size()], tokens.size() - at);
      SampleRequest request;
      request.row = static_cast<uint32_t>(count - 1);
      request.top_logprobs = 5;
      const StepResult result = harness.step({{&sequence, tokens.subspan(at, count), {request}}});
      at += count;
      if (at % 100 != 0) continue;  // rows that every way of cutting ends a step with
      const auto& top = result.samples[0][0].top;
      scored.insert(scored.end(), top.begin(), top.end());
    }
    return scored;
  };
  const auto expected = scores({}, {100});
  ASSERT_EQ(expected.size(), 35u);
  auto equal = [&](const std::vector<TokenLogprob>& other) {
    return std::equal(expected.begin(), expected.end(), other.begin(), other.end(),
                      [](const TokenLogprob& a, const TokenLogprob& b) {
                        return a.token == b.token && a.logprob == b.logprob;
                      });
  };
  EXPECT_TRUE(equal(scores({.threads = 2}, {100})));
  EXPECT_TRUE(equal(scores({.tile_rows = 33}, {50, 50})));
  EXPECT_TRUE(equal(scores({.page_tokens = 64}, {16, 84})));
  EXPECT_TRUE(equal(scores({}, {1, 1, 1, 96, 1})));
  const auto whole = scores({.threads = 2, .tile_rows = 1024}, {700});
  ASSERT_EQ(whole.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(whole[i].token, expected[30 + i].token);
    EXPECT_EQ(whole[i].logprob, expected[30 + i].logprob);
  }
}

}  // namespace
}  // namespace spillway::model
