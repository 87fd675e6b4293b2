#include "model/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace spillway::model {
namespace {

std::string digest(std::initializer_list<std::string> parts) {
  Digest result;
  for (const std::string& part : parts) result.add(part);
  return result.hex();
}

TEST(Digest, every_bit_and_every_boundary_counts) {
  std::string text(100, 'a');
  std::set<std::string> seen = {digest({text})};
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(seen.insert(digest({changed})).second) << bit;
  }
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_TRUE(seen.insert(digest({text.substr(0, cut), text.substr(cut)})).second) << cut;
  }
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_TRUE(seen.insert(digest({text.substr(0, length)})).second) << length;
  }
  EXPECT_TRUE(seen.insert(digest({})).second);
}

TEST(Digest, order_of_words_counts) {
  std::string words;
  for (char c = 'a'; c < 'a' + 16; ++c) words += std::string(8, c);
  std::set<std::string> seen = {digest({words})};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < i; ++j) {
      std::string swapped = words;
      std::swap_ranges(swapped.begin() + i * 8, swapped.begin() + i * 8 + 8,
                       swapped.begin() + j * 8);
      EXPECT_TRUE(seen.insert(digest({swapped})).second) << i << " " << j;
    }
  }
}

TEST(Digest, is_the_same_everywhere) {
  EXPECT_EQ(digest({"spillway"}), digest({"spillway"}));
  EXPECT_EQ(digest({"spillway"}).size(), 32u);
}

}  // namespace
}  // namespace spillway::model
