// A whole model on one device, both of which can be made again when the device has ended:
// implements Runner (runner.h) by the one that it made last. The engine's device is device(), which
// stays the same while what is behind it changes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/device_set.h"
#include "model/runner.h"
#include "runtime/result.h"

namespace spillway::model {

class RenewableRunner final : public Runner {
 public:
  // Called at the start, and each time after the runner and the device before are gone.
  struct Make {
    std::function<Result<std::unique_ptr<kernels::Device>>()> device;
    std::function<Result<std::unique_ptr<Runner>>(kernels::Device&)> runner;
  };
  static Result<std::unique_ptr<RenewableRunner>> create(Make make);

  const RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*> base) override { runner_->bind_pages(std::move(base)); }
  uint32_t batch_tokens_max() const override { return batch_tokens_max_; }
  uint32_t rows_together_max() const override { return rows_together_max_; }
  void enqueue(const StepBatch& batch, StepResult& result) override {
    runner_->enqueue(batch, result);
  }
  bool enqueue_rest() override { return runner_->enqueue_rest(); }
  void collect(const StepBatch& batch, StepResult& result) override {
    runner_->collect(batch, result);
  }
  // Fails also where what is made computes otherwise, by its fingerprint.
  Result<std::string> rebuild() override;

  kernels::Device& device() { return *set_; }

 private:
  explicit RenewableRunner(Make make) : make_(std::move(make)) {}
  Result<> make();

  const Make make_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::DeviceSet> set_;  // of one
  std::unique_ptr<Runner> runner_;           // null: there is none now
  RunnerShape shape_;
  uint32_t batch_tokens_max_ = 0, rows_together_max_ = 0;
};

}  // namespace spillway::model
