// A CPU device that ends: at a given operation of one of its streams, or when it is told to. From
// there on it does what kernels/device.h says of a device that has ended, and writes no byte.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cpu_device.h"
#include "kernels/device.h"
#include "runtime/check.h"

namespace spillway::kernels {

enum class MortalStream : uint8_t { kCompute, kCopyIn, kCopyOut };
constexpr size_t kMortalStreams = 3;

// Shared by the device, its streams and what they have enqueued.
class Mortality {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};

  // The stream's launch or copy behind so many others, counted from now, ends the device. Any
  // thread.
  void end_at(MortalStream stream, uint64_t operations) {
    left_[static_cast<size_t>(stream)].store(operations, std::memory_order_relaxed);
  }
  void end_now() { ended_.store(true, std::memory_order_release); }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // That the stream has got to.
  uint64_t operations(MortalStream stream) const {
    return operations_[static_cast<size_t>(stream)].load();
  }
  // A stream's first worker: whether its next operation runs.
  bool next_runs(MortalStream stream) {
    operations_[static_cast<size_t>(stream)].fetch_add(1);
    std::atomic<uint64_t>& left = left_[static_cast<size_t>(stream)];
    if (left.load(std::memory_order_relaxed) != kNever && left.fetch_sub(1) == 0) end_now();
    return !ended();
  }

 private:
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> operations_[kMortalStreams] = {};
  std::atomic<uint64_t> left_[kMortalStreams] = {kNever, kNever, kNever};
};

// `looked` is what the engine's thread knows: it changes where device.h lets failure() change.
class MortalEvent final : public Event {
 public:
  MortalEvent(std::unique_ptr<Event> event, std::shared_ptr<Mortality> mortality,
              std::shared_ptr<std::optional<Error>> looked)
      : event_(std::move(event)), mortality_(std::move(mortality)), looked_(std::move(looked)) {}
  bool done() const override { return event_->done(); }
  Task<> wait() override {
    co_await event_->wait();
    look(*mortality_, *looked_);
  }
  static void look(const Mortality& mortality, std::optional<Error>& looked) {
    if (!looked && mortality.ended()) looked = Error{ErrorCode::kIo, "the device was unplugged"};
  }
  Event& inner() const { return *event_; }

 private:
  std::unique_ptr<Event> event_;
  std::shared_ptr<Mortality> mortality_;
  std::shared_ptr<std::optional<Error>> looked_;
};

class MortalCpuStream final : public Stream {
 public:
  MortalCpuStream(Stream& stream, MortalStream which, std::shared_ptr<Mortality> mortality,
                  std::shared_ptr<std::optional<Error>> looked)
      : stream_(stream),
        which_(which),
        mortality_(std::move(mortality)),
        looked_(std::move(looked)) {}

  void launch(Launch work) override {
    look();
    stream_.launch([work = std::move(work), mortality = mortality_, which = which_,
                    runs = std::make_shared<bool>(false)](Team& team) {
      if (team.index() == 0) *runs = mortality->next_runs(which);
      team.barrier();
      if (*runs) work(team);
    });
  }
  void copy(void* to, const void* from, size_t bytes) override {
    launch([=](Team& team) {
      if (team.index() == 0) std::memcpy(to, from, bytes);
    });
  }
  void record(Event& event) override {
    look();
    stream_.record(static_cast<MortalEvent&>(event).inner());
  }
  void wait(const Event& event) override {
    look();
    stream_.wait(static_cast<const MortalEvent&>(event).inner());
  }
  void wait(const Gate& gate, uint32_t level) override {
    look();
    stream_.wait(gate, level);
  }

 private:
  void look() { MortalEvent::look(*mortality_, *looked_); }

  Stream& stream_;
  const MortalStream which_;
  const std::shared_ptr<Mortality> mortality_;
  const std::shared_ptr<std::optional<Error>> looked_;
};

// Without gates: what opens them when the device ends is not its affair.
class MortalDevice final : public Device {
 public:
  MortalDevice(const CpuDeviceOptions& options, std::shared_ptr<Mortality> mortality)
      : device_(make_cpu_device(options)), mortality_(std::move(mortality)) {}

  Result<DeviceMemory> allocate(size_t bytes) override {
    CHECK(failure() == nullptr);
    return device_->allocate(bytes);
  }
  Result<DeviceMemory> allocate_host(size_t bytes) override { return device_->allocate(bytes); }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<MortalEvent>(device_->make_event(), mortality_, looked_);
  }
  std::unique_ptr<Gate> make_gate() override {
    CHECK(false);
    return nullptr;
  }
  Stream& compute() override { return compute_; }
  Stream& copy_in() override { return copy_in_; }
  Stream& copy_out() override { return copy_out_; }
  std::string description() const override { return device_->description(); }
  bool has_gates() const override { return false; }
  const Error* failure() const override { return *looked_ ? &**looked_ : nullptr; }

 private:
  const std::unique_ptr<Device> device_;
  const std::shared_ptr<Mortality> mortality_;
  const std::shared_ptr<std::optional<Error>> looked_ = std::make_shared<std::optional<Error>>();
  MortalCpuStream compute_{device_->compute(), MortalStream::kCompute, mortality_, looked_};
  MortalCpuStream copy_in_{device_->copy_in(), MortalStream::kCopyIn, mortality_, looked_};
  MortalCpuStream copy_out_{device_->copy_out(), MortalStream::kCopyOut, mortality_, looked_};
};

}  // namespace spillway::kernels
