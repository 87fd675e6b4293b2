// Copies that come up together share an event, and each is there when its coroutine goes on.
#include "cache/copies_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/engine_loop.h"
#include "runtime/scope.h"
#include "tests/sim/sim_device.h"

namespace spillway::cache {
namespace {

constexpr size_t kPageBytes = 4096;

class CopiesUpTest : public testing::Test {
 protected:
  CopiesUpTest() {
    for (size_t i = 0; i < kPages * kPageBytes; ++i) {
      host_.data[i] = static_cast<std::byte>(i * 7 + i / kPageBytes);
    }
  }

  Task<> bring(size_t page) {
    std::byte* const to = pages_.data + page * kPageBytes;
    const std::span<const std::byte> from(host_.data + page * kPageBytes, kPageBytes);
    co_await copies_.copy(to, from);
    came_.push_back(page);
    if (device_.failure() == nullptr) {
      EXPECT_EQ(std::memcmp(to, from.data(), kPageBytes), 0) << "page " << page;
    }
  }
  uint64_t events() const {
    return static_cast<const sim::SimStream&>(device_.copy_in()).recorded();
  }
  void run_ready() {
    while (loop_.run_one()) {
    }
  }
  void run_all() {
    do {
      run_ready();
    } while (device_.run_one());
    run_ready();
  }

  static constexpr size_t kPages = 12;
  SimulatedClock clock_;
  mutable sim::SimDevice device_{1};
  sim::SimParker parker_{clock_, device_};
  EngineLoop loop_{clock_, parker_};
  Scope scope_{loop_.executor()};
  kernels::DeviceMemory host_ = device_.allocate_host(kPages * kPageBytes).value();
  kernels::DeviceMemory pages_ = device_.allocate(kPages * kPageBytes).value();
  CopiesUp copies_{device_};
  std::vector<size_t> came_;  // pages, in the order in which their coroutines went on
};

TEST_F(CopiesUpTest, those_of_one_turn_share_an_event) {
  for (size_t page = 0; page < 8; ++page) scope_.spawn(bring(page));
  run_ready();
  EXPECT_EQ(device_.copies_in().size(), 8u);
  EXPECT_EQ(events(), 1u);
  EXPECT_TRUE(came_.empty());
  run_all();
  EXPECT_EQ(came_.size(), 8u);
  EXPECT_EQ(scope_.running(), 0u);
}

TEST_F(CopiesUpTest, one_that_comes_later_waits_for_its_own) {
  for (size_t page = 0; page < 3; ++page) scope_.spawn(bring(page));
  run_ready();
  for (size_t page = 3; page < 5; ++page) scope_.spawn(bring(page));
  run_ready();
  EXPECT_EQ(events(), 2u);
  for (int operation = 0; operation < 4; ++operation) device_.run_one();  // three and their event
  run_ready();
  EXPECT_EQ(came_, (std::vector<size_t>{0, 1, 2}));
  run_all();
  EXPECT_EQ(came_.size(), 5u);
}

TEST_F(CopiesUpTest, all_go_on_when_the_device_ends_before_the_event_and_behind_it) {
  for (const bool behind : {false, true}) {
    came_.clear();
    for (size_t page = 0; page < 4; ++page) scope_.spawn(bring(page));
    for (int i = 0; i < (behind ? 100 : 5); ++i) loop_.run_one();
    device_.fail();
    run_all();
    EXPECT_EQ(came_.size(), 4u);
    EXPECT_EQ(scope_.running(), 0u);
    device_.replace();
  }
}

}  // namespace
}  // namespace spillway::cache
