// The CUDA device itself, on the simulated runtime, for a model without operators: what is launched
// is a kernel in its stream's order. In a simulated world the GPU goes on by a part of one
// operation when the world says so, and now and then a stream, which the seed chooses, stands still
// for a while, so that its copies and events come late. With threads the GPU goes on by itself.
//
// Thread: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "runtime/check.h"
#include "runtime/prng.h"
#include "tests/emulator/simulated_cuda.h"

namespace spillway::sim {

class SteppedGpu final : public kernels::Device {
 public:
  explicit SteppedGpu(const emulator::SimulatedCudaOptions& options)
      : choices_(options.seed), cuda_(options) {
    auto made = kernels::make_cuda_device({});
    CHECK(made.has_value());
    gpu_ = *std::move(made);
  }

  // False: nothing of it can go on now. REQUIRES: no threads.
  bool run_one() {
    if (stands_still_ != nullptr && --still_for_ == 0) {
      cuda_.hold(std::exchange(stands_still_, nullptr), false);
    }
    if (stands_still_ == nullptr && gpu_->failure() == nullptr && choices_.below(50) == 0) {
      stands_still_ = native(choices_.below(3));
      still_for_ = 1 + choices_.below(100);
      cuda_.hold(stands_still_, true);
      ++times_still_;
    }
    return cuda_.step();
  }
  // compute, copy-in, copy-out
  CUstream_st* native(uint64_t stream) const {
    return gpu_->native(stream == 0   ? gpu_->compute()
                        : stream == 1 ? gpu_->copy_in()
                                      : gpu_->copy_out());
  }
  emulator::SimulatedCuda& cuda() { return cuda_; }
  uint64_t times_still() const { return times_still_; }
  // Ends the device; what of it there is then, and how it was misused, a line each.
  std::string end() {
    gpu_.reset();
    std::string out = cuda_.left();
    for (const std::string& misuse : cuda_.take_misuse()) out += misuse + "\n";
    return out;
  }

  Result<kernels::DeviceMemory> allocate(size_t bytes) override { return gpu_->allocate(bytes); }
  Result<kernels::DeviceMemory> allocate_host(size_t bytes) override {
    return gpu_->allocate_host(bytes);
  }
  std::unique_ptr<kernels::Event> make_event() override { return gpu_->make_event(); }
  std::unique_ptr<kernels::Gate> make_gate() override { return gpu_->make_gate(); }
  kernels::Stream& compute() override { return compute_; }
  kernels::Stream& copy_in() override { return gpu_->copy_in(); }
  kernels::Stream& copy_out() override { return gpu_->copy_out(); }
  std::string description() const override { return gpu_->description(); }
  bool host_reaches_memory() const override { return gpu_->host_reaches_memory(); }
  bool has_gates() const override { return gpu_->has_gates(); }
  const Error* failure() const override { return gpu_->failure(); }

 private:
  class TeamOfOne final : public kernels::Team {
   public:
    uint32_t index() const override { return 0; }
    uint32_t count() const override { return 1; }
    void barrier() override {}
  };
  class Compute final : public kernels::Stream {
   public:
    explicit Compute(SteppedGpu& owner) : owner_(owner) {}
    void launch(kernels::Launch work) override {
      stream().launch([&](kernels::Team&) {
        owner_.gpu_->take_error_of("kernel",
                                   owner_.cuda_.launch(owner_.native(0), [run = std::move(work)] {
                                     TeamOfOne team;
                                     run(team);
                                   }));
      });
    }
    void copy(void* to, const void* from, size_t bytes) override { stream().copy(to, from, bytes); }
    void record(kernels::Event& event) override { stream().record(event); }
    void wait(const kernels::Event& event) override { stream().wait(event); }
    void wait(const kernels::Gate& gate, uint32_t level) override { stream().wait(gate, level); }

   private:
    kernels::Stream& stream() { return owner_.gpu_->compute(); }
    SteppedGpu& owner_;
  };

  Prng choices_;
  emulator::SimulatedCuda cuda_;  // ends the process where CUDA was misused
  std::unique_ptr<kernels::CudaDevice> gpu_;
  Compute compute_{*this};
  CUstream_st* stands_still_ = nullptr;  // null: none does
  uint64_t still_for_ = 0;               // calls of run_one()
  uint64_t times_still_ = 0;
};

}  // namespace spillway::sim
