// How cuBLASLt is found, and what is said where it is not, or is another's.
#include "kernels/cuda/blas_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spillway::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string why_not(const std::vector<std::string>& names) {
  const auto calls = load_blas_calls_from(names);
  EXPECT_FALSE(calls.has_value());
  if (calls) return "";
  EXPECT_EQ(calls.error().code, ErrorCode::kUnavailable);
  return calls.error().message;
}

TEST(BlasCalls, a_library_that_is_not_there_is_named_with_what_to_install) {
  EXPECT_THAT(why_not({"libno_such_blas.so.13"}),
              AllOf(HasSubstr("libno_such_blas.so.13"), HasSubstr("install cuBLAS 13"),
                    HasSubstr("LD_LIBRARY_PATH"), HasSubstr("--no-batch-invariant")));
}

TEST(BlasCalls, another_version_is_refused) {
  EXPECT_THAT(why_not({SPILLWAY_FALSE_BLAS_OLD}),
              AllOf(HasSubstr("version 120803, not 13"), HasSubstr("install cuBLAS 13")));
}

TEST(BlasCalls, a_library_without_a_call_is_refused_by_the_calls_name) {
  EXPECT_THAT(why_not({SPILLWAY_FALSE_BLAS_PARTIAL}), HasSubstr("has no cublasLtCreate"));
  EXPECT_THAT(why_not({SPILLWAY_FALSE_BLAS_VERSIONLESS}), HasSubstr("has no cublasLtGetVersion"));
}

TEST(BlasCalls, the_first_that_can_be_loaded_counts) {
  EXPECT_THAT(why_not({"libno_such_blas.so.13", SPILLWAY_FALSE_BLAS_OLD}),
              HasSubstr("version 120803"));
}

}  // namespace
}  // namespace spillway::kernels::cuda
