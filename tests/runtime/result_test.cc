#include "runtime/result.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(ResultTest, value_of_an_error_throws_its_message) {
  const Result<int> result = invalid_argument("n must be at least 1");
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  try {
    static_cast<void>(result.value());
    FAIL() << "value() returned";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "n must be at least 1");
  }
}

TEST(ResultTest, void_result_is_success_by_default) {
  const Result<> result;
  EXPECT_TRUE(result.has_value());
}

}  // namespace
}  // namespace spillway
