#include "model/renewable_runner.h"

#include <utility>

namespace spillway::model {

Result<std::unique_ptr<RenewableRunner>> RenewableRunner::create(Make make) {
  std::unique_ptr<RenewableRunner> made(new RenewableRunner(std::move(make)));
  if (const Result<> done = made->make(); !done) return done.error();
  made->shape_ = made->runner_->shape();
  made->batch_tokens_max_ = made->runner_->batch_tokens_max();
  made->rows_together_max_ = made->runner_->rows_together_max();
  return made;
}

Result<> RenewableRunner::make() {
  auto device = make_.device();
  if (!device) return device.error();
  device_ = *std::move(device);
  if (set_ == nullptr) {
    set_ = kernels::make_device_set({device_.get()}, 0);
  } else {
    set_->replace(0, *device_);
  }
  auto runner = make_.runner(*device_);
  if (!runner) return runner.error();
  runner_ = *std::move(runner);
  return {};
}

Result<std::string> RenewableRunner::rebuild() {
  if (runner_ != nullptr && set_->failure() == nullptr) {
    return std::string("the device has not ended");
  }
  runner_.reset();
  set_->take_out(0);
  device_.reset();
  if (const Result<> made = make(); !made) {
    runner_.reset();
    return made.error();
  }
  const Error* const ended = set_->failure();  // again
  const bool same = runner_->shape().fingerprint == shape_.fingerprint;
  if (ended == nullptr && same) return device_->description();
  runner_.reset();
  if (ended != nullptr) return *ended;
  return Error{ErrorCode::kUnavailable,
               "the model's file or the new device's arithmetic is another than at the start"};
}

}  // namespace spillway::model
