// What a key tells apart.
#include "cache/namespace_key.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::cache {
namespace {

constexpr KeyMode kHash = KeyMode::kHash;

// case I1
TEST(namespace_key, parts_cannot_be_made_to_collide_by_shifting_bytes_between_them) {
  const std::string eight_bytes("\1\0\0\0\0\0\0\0", 8);
  std::set<std::string> identities;
  const NamespaceName names[] = {{"m", "ab", "c"}, {"m", "a", "bc"},       {"m", "abc", ""},
                                 {"m", "", "abc"}, {"ma", "b", "c"},       {"", "mab", "c"},
                                 {"m", "", ""},    {"", "", "m"},          {"", "m", ""},
                                 {"", "", ""},     {"m", eight_bytes, ""}, {"m", "", eight_bytes}};
  for (const NamespaceName& name : names) identities.insert(make_namespace(name, 7).identity);
  EXPECT_EQ(identities.size(), std::size(names));
}

TEST(namespace_key, the_same_name_gives_the_same_keys) {
  const std::vector<TokenId> tokens(16, 5);
  const Namespace a = make_namespace({"m", "t", "s"}, 7), b = make_namespace({"m", "t", "s"}, 7);
  EXPECT_EQ(a.identity, b.identity);
  EXPECT_EQ(page_key(kHash, a, {}, tokens), page_key(kHash, b, {}, tokens));
}

TEST(namespace_key, a_key_depends_on_all_that_it_names) {
  const Namespace space = make_namespace({"m", "t", "s"}, 7);
  const std::vector<TokenId> tokens(16, 5);
  const PageKey key = page_key(kHash, space, {}, tokens);
  EXPECT_NE(key, page_key(kHash, make_namespace({"m", "t", "S"}, 7), {}, tokens));
  EXPECT_NE(key, page_key(kHash, make_namespace({"m", "T", "s"}, 7), {}, tokens));
  EXPECT_NE(key, page_key(kHash, make_namespace({"M", "t", "s"}, 7), {}, tokens));
  EXPECT_NE(key, page_key(kHash, make_namespace({"m", "t", "s"}, 8), {}, tokens));
  EXPECT_NE(key, page_key(kHash, space, {1, 0}, tokens));
  EXPECT_NE(key, page_key(kHash, space, {0, 1}, tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<TokenId> other = tokens;
    ++other[i];
    EXPECT_NE(key, page_key(kHash, space, {}, other)) << i;
  }
}

TEST(namespace_key, the_longest_page_is_hashed_to_its_end) {
  const Namespace space = make_namespace({"m", "", ""}, 7);
  std::vector<TokenId> tokens(kPageTokensMax, 5);
  const PageKey key = page_key(kHash, space, {}, tokens);
  tokens.back() = 6;
  EXPECT_NE(key, page_key(kHash, space, {}, tokens));
}

}  // namespace
}  // namespace spillway::cache
