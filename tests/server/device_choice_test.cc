// What --device chooses on machines with GPUs and without, and what of a GPU's memory KV pages get.
#include "server/cli/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/cli/gpu_budget.h"

namespace spillway::server {
namespace {

using kernels::GpuInfo;
using testing::HasSubstr;
using Found = Result<std::vector<GpuInfo>>;

GpuInfo gpu(int index, int major) {
  return {.index = index, .name = "made up", .major = major, .memory_bytes = size_t{80} << 30};
}

Found none() { return Error{ErrorCode::kUnavailable, "no GPU to use: there is no driver"}; }

DeviceWish wish(const char* text) { return parse_device(text).value(); }

TEST(DeviceChoice, takes_the_words_of_the_flag_and_no_others) {
  EXPECT_EQ(wish("auto").kind, DeviceWish::Kind::kAuto);
  EXPECT_EQ(wish("cpu").kind, DeviceWish::Kind::kCpu);
  EXPECT_EQ(wish("cuda").kind, DeviceWish::Kind::kCuda);
  EXPECT_EQ(wish("cuda").index, 0);
  EXPECT_EQ(wish("cuda:12").index, 12);
  for (const char* wrong : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda1",
                            "cuda:99999999999", "cpu:0"}) {
    EXPECT_FALSE(parse_device(wrong).has_value()) << wrong;
  }
}

TEST(DeviceChoice, auto_takes_the_first_gpu_that_can_be_used_and_says_why) {
  const auto choice = choose_device(wish("auto"), 1, Found({gpu(0, 7), gpu(1, 9)}));
  EXPECT_TRUE(choice->gpu);
  EXPECT_EQ(choice->index, 1);
  EXPECT_EQ(choice->why, "made up, sm_90, 80 GiB can be used");
}

TEST(DeviceChoice, auto_stays_with_the_processor_and_says_why) {
  const auto missing = choose_device(wish("auto"), 1, none());
  EXPECT_FALSE(missing->gpu);
  EXPECT_EQ(missing->why, "no GPU to use: there is no driver");
  const auto old = choose_device(wish("auto"), 1, Found({gpu(0, 7)}));
  EXPECT_FALSE(old->gpu);
  EXPECT_THAT(old->why, HasSubstr("older"));
  const auto divided = choose_device(wish("auto"), 2, Found({gpu(0, 9), gpu(1, 9)}));
  EXPECT_FALSE(divided->gpu);
  EXPECT_THAT(divided->why, HasSubstr("--tensor-parallel-size"));
}

TEST(DeviceChoice, the_processor_is_not_argued_about) {
  const auto choice = choose_device(wish("cpu"), 4, Found({gpu(0, 9)}));
  EXPECT_FALSE(choice->gpu);
  EXPECT_EQ(choice->why, "");
}

TEST(DeviceChoice, a_gpu_that_is_asked_for_and_not_there_is_an_error) {
  const Found two({gpu(0, 9), gpu(1, 7)});
  EXPECT_TRUE(choose_device(wish("cuda"), 1, two)->gpu);
  EXPECT_EQ(choose_device(wish("cuda"), 1, none()).error().message,
            "--device cuda: no GPU to use: there is no driver");
  EXPECT_THAT(choose_device(wish("cuda:2"), 1, two).error().message, HasSubstr("sees 2 GPUs"));
  EXPECT_THAT(choose_device(wish("cuda:1"), 1, two).error().message, HasSubstr("older"));
  const auto divided = choose_device(wish("cuda"), 2, two);
  EXPECT_EQ(divided.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(divided.error().message, HasSubstr("--device cpu divides it"));
}

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(GpuBudget, pages_get_the_share_less_what_others_have) {
  const kernels::GpuMemory memory{.free_bytes = 800 * kMiB, .all_bytes = 1000 * kMiB};
  // 900 may be taken, 200 are, and 2 are for what an allocation rounds up to.
  EXPECT_EQ(kv_bytes_on_gpu(memory, 0.9, 0).value(), 698 * kMiB);
  EXPECT_EQ(kv_bytes_on_gpu(memory, 0.9, 99 * kMiB).value(), 598 * kMiB);
  EXPECT_LE(kv_bytes_on_gpu(memory, 1.0, 0).value(), memory.free_bytes);
}

TEST(GpuBudget, a_share_that_others_have_already_is_an_error_that_says_what_to_do) {
  const kernels::GpuMemory memory{.free_bytes = 100 * kMiB, .all_bytes = 1000 * kMiB};
  const auto none_left = kv_bytes_on_gpu(memory, 0.9, 0);
  EXPECT_EQ(none_left.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(none_left.error().message, HasSubstr("raise --gpu-memory-utilization"));
  EXPECT_THAT(none_left.error().message, HasSubstr("--device cpu"));
  EXPECT_TRUE(kv_bytes_on_gpu(memory, 0.95, 0).has_value());
  EXPECT_FALSE(kv_bytes_on_gpu(memory, 0.95, 50 * kMiB).has_value());
}

}  // namespace
}  // namespace spillway::server
