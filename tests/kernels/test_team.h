// A team of plain threads for the tests of ops: run_team(workers, launch) calls the launch once per
// worker and returns when all have.
#pragma once

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/device.h"

namespace spillway::kernels {

class TestTeam final : public Team {
 public:
  TestTeam(uint32_t index, uint32_t count, std::barrier<>& barrier)
      : index_(index), count_(count), barrier_(barrier) {}
  uint32_t index() const override { return index_; }
  uint32_t count() const override { return count_; }
  void barrier() override { barrier_.arrive_and_wait(); }

 private:
  uint32_t index_;
  uint32_t count_;
  std::barrier<>& barrier_;
};

inline void run_team(uint32_t workers, const Launch& launch) {
  std::barrier<> barrier(workers);
  std::vector<std::jthread> threads;
  for (uint32_t index = 0; index < workers; ++index) {
    threads.emplace_back([&barrier, &launch, index, workers] {
      TestTeam team(index, workers, barrier);
      launch(team);
    });
  }
}

}  // namespace spillway::kernels
