#include "kernels/cpu_level.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::kernels {
namespace {

constexpr CpuFeatures kServer{.avx2 = true, .avx512 = true};
constexpr CpuFeatures kDesktop{.avx2 = true, .avx_vnni = true};

TEST(CpuLevelTest, best_level_is_chosen_unless_one_is_forced) {
  EXPECT_EQ(choose_cpu_level(CpuFeatures{}, nullptr).value(), CpuLevel::kBaseline);
  EXPECT_EQ(choose_cpu_level(kDesktop, "").value(), CpuLevel::kAvxVnni);
  EXPECT_EQ(choose_cpu_level(kServer, nullptr).value(), CpuLevel::kAvx512);
  EXPECT_EQ(choose_cpu_level(kServer, "avx2").value(), CpuLevel::kAvx2);
  EXPECT_EQ(choose_cpu_level(kServer, "baseline").value(), CpuLevel::kBaseline);
}

TEST(CpuLevelTest, a_level_that_the_machine_lacks_is_refused_with_what_it_has) {
  const auto refused = choose_cpu_level(kDesktop, "avx512");
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("baseline, avx2, avxvnni"), std::string::npos);
}

TEST(CpuLevelTest, an_unknown_level_is_an_invalid_argument) {
  const auto refused = choose_cpu_level(kServer, "AVX9");
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("AVX9"), std::string::npos);
}

TEST(CpuLevelTest, every_available_level_can_be_forced_by_its_name) {
  for (const CpuLevel level : available_cpu_levels()) {
    const std::string name(cpu_level_name(level));
    EXPECT_EQ(choose_cpu_level(cpu_features(), name.c_str()).value(), level);
  }
  EXPECT_EQ(available_cpu_levels().front(), CpuLevel::kBaseline);
}

}  // namespace
}  // namespace spillway::kernels
