// What becomes of a transfer for every answer that the system may give (case S6).
#include "io/operations.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/io/aligned.h"

namespace spillway::io {
namespace {

using Kind = Operation::Kind;

constexpr size_t kPage = kSectorBytes;

Operation operation(Kind kind, const Aligned& memory) {
  return Operation(kind, transfer(nullptr, 0, memory));
}

TEST(take_answer, a_short_transfer_goes_on_where_it_stopped) {
  const Aligned memory(8 * kPage);
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    Operation op = operation(kind, memory);
    EXPECT_FALSE(take_answer(op, "f", 2 * kPage));
    EXPECT_EQ(op.moved, 2 * kPage);
    EXPECT_EQ(op.rest().data(), memory.span().data() + 2 * kPage);
    EXPECT_FALSE(take_answer(op, "f", 3 * kPage + 512));  // whole sectors count
    EXPECT_EQ(op.rest().size(), 3 * kPage);
    const auto end = take_answer(op, "f", 3 * kPage);
    ASSERT_TRUE(end);
    EXPECT_TRUE(*end);
    EXPECT_EQ(op.moved, 8 * kPage);
  }
}

TEST(take_answer, a_read_that_comes_to_the_end_is_corrupt) {
  const Aligned memory(2 * kPage);
  for (const int64_t last : {int64_t{0}, int64_t{100}}) {
    Operation op = operation(Kind::kRead, memory);
    EXPECT_FALSE(take_answer(op, "f", kPage));
    const auto end = take_answer(op, "f", last);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->error().code, ErrorCode::kCorrupt);
  }
}

TEST(take_answer, interruptions_are_retried_a_bounded_number_of_times) {
  const Aligned memory(64 * kPage);
  for (const Kind kind : {Kind::kRead, Kind::kWrite, Kind::kSync}) {
    for (const int error_number : {EINTR, EAGAIN}) {
      Operation op = operation(kind, memory);
      uint32_t tries = 0;
      std::optional<Result<>> end;
      while (!(end = take_answer(op, "f", -error_number))) ASSERT_LT(++tries, 1000u);
      EXPECT_GE(tries, 8u);
      EXPECT_EQ(end->error().code, ErrorCode::kIo);
    }
  }
  Operation op = operation(Kind::kRead, memory);  // progress starts the count anew
  for (int i = 0; i < 63; ++i) {
    for (int j = 0; j < 10; ++j) ASSERT_FALSE(take_answer(op, "f", -EINTR));
    ASSERT_FALSE(take_answer(op, "f", kPage));
  }
}

TEST(take_answer, a_write_that_writes_nothing_ends_in_an_error) {
  const Aligned memory(kPage);
  Operation op = operation(Kind::kWrite, memory);
  uint32_t tries = 0;
  std::optional<Result<>> end;
  while (!(end = take_answer(op, "f", 0))) ASSERT_LT(++tries, 1000u);
  EXPECT_EQ(end->error().code, ErrorCode::kIo);
}

TEST(take_answer, tells_a_full_disk_from_a_broken_one) {
  const Aligned memory(kPage);
  const auto code = [&](int error_number) {
    Operation op = operation(Kind::kWrite, memory);
    return take_answer(op, "f", -error_number)->error().code;
  };
  EXPECT_EQ(code(ENOSPC), ErrorCode::kResourceExhausted);
  EXPECT_EQ(code(EDQUOT), ErrorCode::kResourceExhausted);
  EXPECT_EQ(code(EIO), ErrorCode::kIo);
  EXPECT_EQ(code(EBADF), ErrorCode::kIo);
  EXPECT_EQ(code(ECANCELED), ErrorCode::kCancelled);
}

TEST(take_answer, a_flush_ends_with_its_first_answer) {
  Operation op(Kind::kSync, {});
  EXPECT_TRUE(take_answer(op, "f", 0)->has_value());
  const auto failed = take_answer(op, "f", -EIO);
  EXPECT_EQ(failed->error().code, ErrorCode::kIo);
  EXPECT_EQ(failed->error().message, "flushing f failed: Input/output error");
}

}  // namespace
}  // namespace spillway::io
