#include "kernels/device_set.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/block_until_done.h"
#include "kernels/cpu_device.h"

namespace spillway::kernels {
namespace {

// Passes on what it is given, and remembers what it copies.
class CopyLog final : public Stream {
 public:
  explicit CopyLog(Stream& stream) : stream_(stream) {}
  void launch(Launch work) override { stream_.launch(std::move(work)); }
  void copy(void* to, const void* from, size_t bytes) override {
    sizes.push_back(bytes);
    stream_.copy(to, from, bytes);
  }
  void record(Event& event) override { stream_.record(event); }
  void wait(const Event& event) override { stream_.wait(event); }
  void wait(const Gate& gate, uint32_t level) override { stream_.wait(gate, level); }
  std::vector<size_t> sizes;

 private:
  Stream& stream_;
};

class LoggedDevice final : public Device {
 public:
  Result<DeviceMemory> allocate(size_t bytes) override { return device_->allocate(bytes); }
  Result<DeviceMemory> allocate_host(size_t bytes) override {
    return device_->allocate_host(bytes);
  }
  std::unique_ptr<Event> make_event() override { return device_->make_event(); }
  std::unique_ptr<Gate> make_gate() override { return device_->make_gate(); }
  Stream& compute() override { return compute_log; }
  Stream& copy_in() override { return in; }
  Stream& copy_out() override { return out; }
  std::string description() const override { return device_->description(); }
  bool has_gates() const override { return gates; }
  const Error* failure() const override { return ended ? &*ended : nullptr; }

  bool gates = true;
  std::optional<Error> ended;

 private:
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1, .level = "test"});

 public:
  CopyLog compute_log{device_->compute()}, in{device_->copy_in()}, out{device_->copy_out()};
};

constexpr size_t kPage = 12288;

struct SetOfThree {
  SetOfThree() {
    set = make_device_set({&devices[0], &devices[1], &devices[2]}, 1);
    pool = set->allocate(4 * kPage).value();
    host = set->allocate_host(4 * kPage).value();
    for (size_t i = 0; i < 4 * kPage; ++i) host.data[i] = std::byte(i * 7 + i / 251);
    set->part_pages(pool.data, kPage, {{0, 4096}, {4096, 0}, {4096, 8192}});
  }
  void finish(Stream& stream) {
    const auto event = set->make_event();
    stream.record(*event);
    block_until_done(*event);
  }

  LoggedDevice devices[3];
  std::unique_ptr<DeviceSet> set;
  DeviceMemory pool, host;
};

using Sizes = std::vector<size_t>;

TEST(DeviceSet, each_device_copies_its_part_of_a_page) {
  SetOfThree three;
  three.set->copy_in().copy(three.pool.data, three.host.data, 4 * kPage);
  three.finish(three.set->copy_in());
  EXPECT_EQ(std::memcmp(three.pool.data, three.host.data, 4 * kPage), 0);
  EXPECT_EQ(three.devices[0].in.sizes, Sizes(4, 4096));
  EXPECT_EQ(three.devices[1].in.sizes, Sizes());  // has no part
  EXPECT_EQ(three.devices[2].in.sizes, Sizes(4, 8192));
  std::vector<std::byte> back(2 * kPage);
  three.set->copy_out().copy(back.data(), three.pool.data + kPage, 2 * kPage);
  three.finish(three.set->copy_out());
  EXPECT_EQ(std::memcmp(back.data(), three.host.data + kPage, 2 * kPage), 0);
  EXPECT_EQ(three.devices[2].out.sizes, Sizes(2, 8192));
}

TEST(DeviceSet, a_copy_of_bytes_from_the_middle_of_a_page_takes_no_others) {
  SetOfThree three;
  for (const size_t first : {0u, 1u, 4095u, 4096u, 5000u, 12287u}) {
    for (const size_t bytes : {1u, 4097u, 12288u, 20000u}) {
      std::memset(three.pool.data, 0, 4 * kPage);
      three.set->copy_in().copy(three.pool.data + first, three.host.data + first, bytes);
      three.finish(three.set->copy_in());
      std::vector<std::byte> expected(4 * kPage);
      std::memcpy(expected.data() + first, three.host.data + first, bytes);
      ASSERT_EQ(std::memcmp(three.pool.data, expected.data(), 4 * kPage), 0)
          << first << " " << bytes;
    }
  }
}

TEST(DeviceSet, what_lies_in_no_page_goes_through_home) {
  SetOfThree three;
  const DeviceMemory other = three.set->allocate(kPage).value();
  three.set->copy_in().copy(other.data, three.host.data, kPage);
  three.finish(three.set->copy_in());
  three.set->compute().copy(three.pool.data, other.data, kPage);  // a fork's, between two pages
  EXPECT_EQ(three.devices[1].in.sizes, Sizes{kPage});
  EXPECT_EQ(three.devices[0].in.sizes, Sizes());
  three.finish(three.set->compute());
  EXPECT_EQ(three.devices[1].compute_log.sizes, Sizes{kPage});
  // Where the pool was, new memory may lie.
  three.pool = {};
  three.pool = three.set->allocate(4 * kPage).value();
  three.set->copy_in().copy(three.pool.data, three.host.data, kPage);
  three.finish(three.set->copy_in());
  EXPECT_EQ(three.devices[0].in.sizes, Sizes());
}

// Recorded on all, it is done when the last has got there, whichever that is.
TEST(DeviceSet, an_event_waits_for_every_device) {
  for (uint32_t slow = 0; slow < 3; ++slow) {
    SetOfThree three;
    const auto gate = three.devices[slow].make_gate();
    three.devices[slow].copy_in().wait(*gate, 1);
    const auto event = three.set->make_event();
    three.set->copy_in().record(*event);
    // What waits for the event on another stream of the set runs behind it.
    bool ran = false;
    three.set->compute().wait(*event);
    three.set->compute().launch([&](Team&) { ran = true; });
    for (uint32_t other = 0; other < 3; ++other) {
      if (other == slow) continue;
      const auto there = three.devices[other].make_event();
      three.devices[other].copy_in().record(*there);
      block_until_done(*there);
    }
    EXPECT_FALSE(event->done());
    gate->raise(1);
    block_until_done(*event);
    three.finish(three.set->compute());
    EXPECT_TRUE(ran);
  }
}

// What has been enqueued before, on any device, is over: also where home does not wait for it.
TEST(DeviceSet, an_event_on_compute_waits_for_every_device) {
  for (uint32_t slow = 0; slow < 3; ++slow) {
    SetOfThree three;
    const auto gate = three.devices[slow].make_gate();
    three.devices[slow].compute().wait(*gate, 1);
    const auto event = three.set->make_event();
    three.set->compute().record(*event);
    for (uint32_t other = 0; other < 3; ++other) {
      if (other == slow) continue;
      const auto there = three.devices[other].make_event();
      three.devices[other].compute().record(*there);
      block_until_done(*there);
    }
    EXPECT_FALSE(event->done());
    gate->raise(1);
    block_until_done(*event);
  }
}

TEST(DeviceSet, works_again_with_another_in_the_place_of_one_that_ended) {
  SetOfThree three;
  LoggedDevice fresh;
  three.devices[2].ended = Error{ErrorCode::kUnavailable, "lost"};
  EXPECT_TRUE(three.set->has_ended(2));
  EXPECT_FALSE(three.set->has_ended(1));
  three.set->take_out(2);
  ASSERT_NE(three.set->failure(), nullptr);
  EXPECT_TRUE(three.set->has_ended(2));
  three.set->replace(2, fresh);
  EXPECT_EQ(three.set->failure(), nullptr);
  EXPECT_FALSE(three.set->has_ended(2));
  for (Stream* stream : {&three.set->copy_in(), &three.set->copy_out()}) {
    stream->copy(three.pool.data, three.host.data, 2 * kPage);
    three.finish(*stream);
  }
  EXPECT_EQ(fresh.in.sizes, Sizes(2, 8192));
  EXPECT_EQ(fresh.out.sizes, Sizes(2, 8192));
  EXPECT_EQ(three.devices[2].in.sizes, Sizes());
  EXPECT_EQ(std::memcmp(three.pool.data, three.host.data, 2 * kPage), 0);
}

TEST(DeviceSet, has_the_gates_of_home_and_anybodys_failure) {
  SetOfThree three;
  EXPECT_TRUE(three.set->has_gates());
  three.devices[1].gates = false;
  EXPECT_FALSE(three.set->has_gates());
  EXPECT_EQ(three.set->failure(), nullptr);
  three.devices[2].ended = Error{ErrorCode::kUnavailable, "lost"};
  ASSERT_NE(three.set->failure(), nullptr);
  EXPECT_EQ(three.set->failure()->message, "lost");
}

}  // namespace
}  // namespace spillway::kernels
