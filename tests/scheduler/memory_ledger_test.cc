#include "scheduler/memory_ledger.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace spillway::scheduler {
namespace {

constexpr uint64_t kKiB = uint64_t{1} << 10, kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

LedgerQuestion seven_b(uint32_t kv_heads) {
  LedgerQuestion question;
  question.groups = {{.layers = 32, .kv_heads = kv_heads, .head_dim = 128}};
  question.context_tokens = 4096;
  question.users = 16;
  return question;
}

// Gemma 3 270M: 3 layers attend fully, 15 within 512 tokens.
LedgerQuestion gemma(uint32_t context_tokens) {
  LedgerQuestion question;
  question.groups = {{.layers = 3, .kv_heads = 1, .head_dim = 256},
                     {.layers = 15, .kv_heads = 1, .head_dim = 256, .window = 512}};
  question.context_tokens = context_tokens;
  question.users = 1;
  return question;
}

TEST(MemoryLedger, a_7b_with_32_heads_takes_half_a_mebibyte_a_token) {
  const Ledger ledger = *make_ledger(seven_b(32));
  EXPECT_EQ(ledger.token_bytes, kMiB / 2);
  EXPECT_EQ(ledger.far_token_bytes, kMiB / 2);
  EXPECT_EQ(ledger.user_bytes, 2 * kGiB);
  EXPECT_EQ(ledger.all_bytes, 32 * kGiB);
  EXPECT_EQ(ledger.users_left_out, 16u);
}

TEST(MemoryLedger, shared_kv_heads_take_their_part_of_that) {
  const Ledger gqa = *make_ledger(seven_b(8)), mqa = *make_ledger(seven_b(1));
  EXPECT_EQ(gqa.token_bytes, 128 * kKiB);
  EXPECT_EQ(gqa.all_bytes, 8 * kGiB);
  EXPECT_EQ(mqa.token_bytes, 16 * kKiB);
  EXPECT_EQ(mqa.all_bytes, kGiB);
}

TEST(MemoryLedger, f32_takes_twice_as_much) {
  LedgerQuestion question = seven_b(32);
  question.groups[0].type = kernels::KvType::kF32;
  EXPECT_EQ(make_ledger(question)->user_bytes, 4 * kGiB);
}

TEST(MemoryLedger, users_go_down_the_tiers_in_order) {
  LedgerQuestion question = seven_b(32);
  question.device_bytes = 10 * kGiB;
  question.host_bytes = 9 * kGiB;
  question.nvme_bytes = 11 * kGiB;
  const Ledger ledger = *make_ledger(question);
  EXPECT_EQ(ledger.device.users_max, 5u);
  EXPECT_EQ(ledger.device.users, 5u);
  EXPECT_EQ(ledger.device.used_bytes, 10 * kGiB);
  EXPECT_EQ(ledger.host.users, 4u);  // half a context is none
  EXPECT_EQ(ledger.nvme.users, 5u);  // the index takes little
  EXPECT_EQ(ledger.users_left_out, 2u);
}

TEST(MemoryLedger, a_codec_of_host_memory_makes_room_for_more_users) {
  LedgerQuestion question = seven_b(32);
  question.users = 200;
  question.device_bytes = 10 * kGiB;
  question.host_bytes = 100 * kGiB;
  question.host_codec = kernels::PageCodec::kPlanes;
  const Ledger f16 = *make_ledger(question);
  EXPECT_EQ(f16.host.users_max, 56u);  // 0.885 of a page, in 128ths: 114
  EXPECT_EQ(f16.host_user_bytes, 2 * kGiB * 114 / 128);
  EXPECT_LE(f16.host.used_bytes, question.host_bytes);
  question.groups[0].type = kernels::KvType::kBf16;
  EXPECT_EQ(make_ledger(question)->host.users_max, 71u);  // 0.70: 90
  question.groups[0].type = kernels::KvType::kF32;
  EXPECT_EQ(make_ledger(question)->host.users_max, 25u);  // it makes nothing smaller
}

TEST(MemoryLedger, a_store_of_exactly_the_contexts_has_no_room_for_its_index) {
  LedgerQuestion question = seven_b(32);
  question.nvme_bytes = 10 * kGiB;
  EXPECT_EQ(make_ledger(question)->nvme.users_max, 4u);
}

TEST(MemoryLedger, a_pool_too_small_for_one_context_holds_no_user) {
  LedgerQuestion question = seven_b(32);
  question.device_bytes = 2 * kGiB - 1;
  EXPECT_EQ(make_ledger(question)->device.users_max, 0u);
  question.device_bytes = 2 * kGiB;
  EXPECT_EQ(make_ledger(question)->device.users_max, 1u);
}

TEST(MemoryLedger, a_window_group_keeps_its_window_and_a_page) {
  const Ledger ledger = *make_ledger(gemma(32768));
  EXPECT_EQ(ledger.token_bytes, 18 * kKiB);
  EXPECT_EQ(ledger.far_token_bytes, 3 * kKiB);
  EXPECT_EQ(ledger.groups[0].user_tokens, 32768u);
  EXPECT_EQ(ledger.groups[1].user_tokens, 528u);
  EXPECT_EQ(ledger.user_bytes, 32768 * 3 * kKiB + 528 * 15 * kKiB);
}

TEST(MemoryLedger, a_context_within_the_window_is_kept_whole) {
  EXPECT_EQ(make_ledger(gemma(512))->user_bytes, 512 * 18 * kKiB);
}

TEST(MemoryLedger, on_the_device_the_prefill_of_one_user_has_room_behind_the_window) {
  LedgerQuestion question = gemma(8192);
  question.groups.erase(question.groups.begin());  // all layers have the window
  question.policy.step_tokens_max = 2048;
  question.device_bytes = 1288 * question.groups[0].page_bytes();
  // 32 + 128 + 1 pages for the one that computes a step, 33 for each other.
  EXPECT_EQ(make_ledger(question)->device.users_max, 35u);
  // A step of 2,048 would take more than an eighth of it: of 256, 32 + 16 + 1 pages.
  question.device_bytes = 400 * question.groups[0].page_bytes();
  EXPECT_EQ(make_ledger(question)->device.users_max, 11u);
  question.device_bytes = 48 * question.groups[0].page_bytes();
  EXPECT_EQ(make_ledger(question)->device.users_max, 0u);
}

TEST(MemoryLedger, the_pools_of_both_groups_limit_the_users) {
  LedgerQuestion question = gemma(8192);
  question.users = 1000;
  question.device_bytes = kGiB;
  const Ledger ledger = *make_ledger(question);
  ASSERT_GT(ledger.device.users_max, 4u);
  EXPECT_LE(ledger.groups[0].device_bytes + ledger.groups[1].device_bytes, kGiB);
  EXPECT_LE(ledger.device.users_max * ledger.groups[0].user_bytes, ledger.groups[0].device_bytes);
}

TEST(MemoryLedger, what_no_number_or_tier_holds_is_refused) {
  LedgerQuestion question = seven_b(32);
  question.users = UINT64_MAX / 1024;
  EXPECT_FALSE(make_ledger(question).has_value());
  question = seven_b(32);
  question.device_bytes = uint64_t{17} << 40;
  EXPECT_FALSE(make_ledger(question).has_value());
  question = seven_b(32);
  question.nvme_bytes = kMiB;  // less than a page
  EXPECT_FALSE(make_ledger(question).has_value());
  question.groups[0].layers = 1u << 16;
  EXPECT_FALSE(make_ledger(question).has_value());
}

RC_GTEST_PROP(MemoryLedger, every_user_is_in_one_place_and_no_tier_is_overfull, ()) {
  LedgerQuestion question = gemma(*rc::gen::inRange(1u, 100'000u));
  question.groups[1].window = *rc::gen::inRange(1u, 5000u);
  question.users = *rc::gen::inRange<uint64_t>(0, 10'000);
  question.device_bytes = *rc::gen::inRange<uint64_t>(0, 8 * kGiB);
  question.host_bytes = *rc::gen::inRange<uint64_t>(0, 8 * kGiB);
  question.host_codec =
      *rc::gen::element(kernels::PageCodec::kIdentity, kernels::PageCodec::kPlanes);
  question.nvme_bytes = kGiB + *rc::gen::inRange<uint64_t>(0, 64 * kGiB);
  const auto made = make_ledger(question);
  RC_ASSERT(made.has_value());
  RC_ASSERT(made->device.users + made->host.users + made->nvme.users + made->users_left_out ==
            question.users);
  RC_ASSERT(made->device.used_bytes <= question.device_bytes);
  RC_ASSERT(made->host.used_bytes <= question.host_bytes);
  RC_ASSERT(made->nvme.used_bytes <= question.nvme_bytes);
  const bool full = made->nvme.users == made->nvme.users_max &&
                    made->host.users == made->host.users_max &&
                    made->device.users == made->device.users_max;
  RC_ASSERT(made->users_left_out == 0 || full);
}

}  // namespace
}  // namespace spillway::scheduler
