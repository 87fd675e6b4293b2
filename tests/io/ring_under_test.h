// One ring of each kind with the loop it lives in, so that a test says once what all must do.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "io/make_ring.h"
#include "io/uring_parker.h"
#include "io/uring_ring.h"
#include "runtime/scope.h"
#include "tests/io/aligned.h"
#include "tests/sim/sim_disk.h"

namespace spillway::io {

// A fresh directory on a real file system: under SPILLWAY_TEST_DIR, else beside the test program
// (not /tmp, which is memory on many machines).
class TestDirectory {
 public:
  TestDirectory() {
    const char* wanted = std::getenv("SPILLWAY_TEST_DIR");
    const auto base = wanted != nullptr
                          ? std::filesystem::path(wanted)
                          : std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::string name = (base / "ring_test.XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class RingUnderTest {
 public:
  virtual ~RingUnderTest() = default;
  virtual Ring& ring() = 0;
  virtual EngineLoop& loop() = 0;

  Result<> wait(Task<Result<>> task) {
    Result<> result;
    loop().run(store(std::move(task), &result));
    return result;
  }
  Result<> write(const std::shared_ptr<File>& file, uint64_t offset, const Aligned& bytes) {
    return wait(ring().write(transfer(file, offset, bytes), stop));
  }
  Result<> read(const std::shared_ptr<File>& file, uint64_t offset, const Aligned& bytes) {
    return wait(ring().read(transfer(file, offset, bytes), stop));
  }
  std::shared_ptr<File> open(const std::string& path) {
    auto opened = ring().open(path, {.create = true, .lock = false});
    CHECK(opened.has_value());
    return *opened;
  }
  StopFlag stop;

 private:
  static Task<> store(Task<Result<>> task, Result<>* to) { *to = co_await std::move(task); }
};

class RealRing final : public RingUnderTest {
 public:
  explicit RealRing(ChosenParker chosen)
      : chosen_(std::move(chosen)), ring_(make_ring(chosen_, loop_)) {}
  RealRing(ChosenParker chosen, const UringRing::Options& options)
      : chosen_(std::move(chosen)),
        ring_(std::make_unique<UringRing>(*chosen_.uring, loop_, options)) {}
  Ring& ring() override { return *ring_; }
  EngineLoop& loop() override { return loop_; }
  const ChosenParker& chosen() const { return chosen_; }

 private:
  RealClock clock_;
  ChosenParker chosen_;
  EngineLoop loop_{clock_, *chosen_.parker};
  std::unique_ptr<Ring> ring_;
};

class SimulatedRing final : public RingUnderTest {
 public:
  explicit SimulatedRing(uint64_t seed = 1) : disk_(loop_, files_, seed) {
    parker_.disk = &disk_;
    disk_.faults.latency_max = std::chrono::milliseconds(1);
  }
  Ring& ring() override { return disk_; }
  EngineLoop& loop() override { return loop_; }

 private:
  sim::SimFiles files_;
  SimulatedClock clock_;
  sim::SimDiskParker parker_{clock_};
  EngineLoop loop_{clock_, parker_};
  sim::SimDisk disk_;
};

// "uring", "threads" or "sim"; null where this machine refuses io_uring.
inline std::unique_ptr<RingUnderTest> make_ring_under_test(const std::string& kind) {
  if (kind == "sim") return std::make_unique<SimulatedRing>();
  ChosenParker chosen = make_parker(kind == "uring" ? IoUring::kWhereItWorks : IoUring::kNever);
  if (kind == "uring" && chosen.uring == nullptr) return nullptr;
  return std::make_unique<RealRing>(std::move(chosen));
}

}  // namespace spillway::io
