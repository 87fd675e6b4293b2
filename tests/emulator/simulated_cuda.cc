#include "tests/emulator/simulated_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "runtime/check.h"

namespace spillway::emulator {
namespace {

// CUDA's calls name no runtime.
SimulatedCuda* the_runtime = nullptr;

}  // namespace

SimulatedCuda::SimulatedCuda(const SimulatedCudaOptions& options)
    : options_(options),
      random_(options.seed),
      memory_(options.device_bytes, options.pinned_bytes, !options.threads),
      gpu_{memory_, options.threads, options.late_us} {
  CHECK(the_runtime == nullptr);
  CHECK(!(options.threads && options.at_once));
  the_runtime = this;
}

SimulatedCuda::~SimulatedCuda() {
  streams_.clear();
  the_runtime = nullptr;
  for (const std::string& one : misuse_) std::fprintf(stderr, "CUDA misused: %s\n", one.c_str());
  CHECK(misuse_.empty());
}

SimulatedCuda& SimulatedCuda::current() {
  CHECK(the_runtime != nullptr);
  return *the_runtime;
}

bool SimulatedCuda::step() {
  CHECK(!options_.threads);
  return step_one(false);
}

bool SimulatedCuda::step_one(bool held_too) {
  std::vector<cudaStream_t> able;
  for (const cudaStream_t stream : order_) {
    if ((held_too || !stream->held) && stream->runnable()) able.push_back(stream);
  }
  if (able.empty()) return false;
  able[random_.below(able.size())]->run_part();
  return true;
}

void SimulatedCuda::fail_call(std::string call, cudaError_t error, uint32_t after) {
  failures_.push_back({std::move(call), error, after});
}

void SimulatedCuda::fail_operation(cudaError_t error, uint32_t after) {
  gpu_.error_then.store(error, std::memory_order_relaxed);
  gpu_.until_error.store(after, std::memory_order_relaxed);
}

std::vector<std::string> SimulatedCuda::take_misuse() { return std::exchange(misuse_, {}); }

uint64_t SimulatedCuda::calls(const std::string& name) const {
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

std::string SimulatedCuda::left() const {
  std::string out = memory_.left();
  if (!streams_.empty()) out += std::to_string(streams_.size()) + " streams\n";
  if (!events_.empty()) out += std::to_string(events_.size()) + " events\n";
  return out + graphs_.left();
}

cudaError_t SimulatedCuda::begin(const char* call, Waits waits) {
  ++calls_[call];
  if (waits == Waits::kForTheGpu && waiting_forbidden_ && !told_of_an_error_) {
    report(std::string(call) + " waits for the GPU where nothing may");
  }
  if (const cudaError_t kept = kept_error(); kept != cudaSuccess) {
    told_of_an_error_ = true;
    return kept;
  }
  for (size_t i = 0; i < failures_.size(); ++i) {
    if (failures_[i].call != call || failures_[i].after-- > 0) continue;
    const cudaError_t error = failures_[i].error;
    failures_.erase(failures_.begin() + static_cast<ptrdiff_t>(i));
    told_of_an_error_ = true;
    return error;
  }
  if (waits == Waits::kForTheGpu && !captures_.empty()) {
    for (const auto& capture : captures_) capture->spoilt = true;
    report(std::string(call) + " while a stream captures");
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}

void SimulatedCuda::enqueue(cudaStream_t stream, std::unique_ptr<Operation> operation) {
  if (stream->capture != nullptr) {
    stream->capture->add(stream, std::move(operation));
    return;
  }
  if (stream->behind_a_word() >= options_.behind_a_word_max) {
    report("an operation behind so many that wait for a word blocks who enqueues it");
  }
  stream->add(std::move(operation));
  if (options_.at_once) run_all();
}

void SimulatedCuda::spoil(Capture& capture, std::string misuse) {
  capture.spoilt = true;
  report(std::move(misuse));
}

void SimulatedCuda::captures_end(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const auto& stream : order_) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
  std::erase(captures_, capture);
}

bool SimulatedCuda::known(const char* call, cudaStream_t stream) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  if (number <= 2) {  // null, or one of the two names that CUDA has for it
    report(std::string(call) + " uses the default stream");
    return false;
  }
  if (streams_.contains(stream)) return true;
  report(std::string(call) + " uses a stream that there is none of");
  return false;
}

bool SimulatedCuda::known(const char* call, cudaEvent_t event) {
  if (events_.contains(event)) return true;
  report(std::string(call) + " uses an event that there is none of");
  return false;
}

bool SimulatedCuda::check_copy(const char* call, const void* at, size_t bytes) {
  const auto* const region = memory_.find(at);
  if (region == nullptr) {
    report(std::string(call) + " copies memory that is neither the GPU's nor registered");
    return false;
  }
  if (region->holds(at, bytes)) return true;
  report(std::string(call) + " copies past the end of its memory");
  return false;
}

void SimulatedCuda::check_unused(const char* call, const void* at, size_t bytes) {
  for (const cudaStream_t stream : order_) {
    if (!stream->names(static_cast<const std::byte*>(at), bytes)) continue;
    report(std::string(call) + " of memory that an operation has yet to use");
  }
}

cudaError_t SimulatedCuda::wait_for_device(const char* call, int device) {
  std::vector<cudaStream_t> its;
  for (const cudaStream_t stream : order_) {
    if (stream->device() == device) its.push_back(stream);
  }
  return wait_for(call, its);
}

cudaError_t SimulatedCuda::wait_for(const char* call, const std::vector<cudaStream_t>& streams) {
  const auto begin = std::chrono::steady_clock::now();
  const auto idle = [&] {
    return std::all_of(streams.begin(), streams.end(), [](auto one) { return one->idle(); });
  };
  const auto busy = [&] {
    return std::any_of(order_.begin(), order_.end(), [](auto one) { return one->busy(); });
  };
  while (!idle()) {
    if (kept_error() != cudaSuccess) {
      while (busy()) std::this_thread::yield();
      told_of_an_error_ = true;
      return kept_error();
    }
    const bool goes_on = options_.threads
                             ? std::chrono::steady_clock::now() - begin < std::chrono::minutes(1)
                             : step_one(true);
    if (!goes_on) {
      report(std::string(call) + " waits for ever");
      return cudaErrorLaunchTimeout;
    }
    if (options_.threads) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return kept_error();
}

void SimulatedCuda::check_current(const char* call, int device) {
  const bool meant = order_.empty() || std::any_of(order_.begin(), order_.end(), [=](auto one) {
                       return one->device() == device;
                     });
  if (!meant) report(std::string(call) + " is for another device than the streams'");
}

void SimulatedCuda::reset() {
  streams_.clear();
  order_.clear();
  events_.clear();
  captures_.clear();
  graphs_.clear();
  memory_.clear();
  gpu_.error.store(0, std::memory_order_relaxed);
  gpu_.until_error.store(-1, std::memory_order_relaxed);
  told_of_an_error_ = false;
}

cudaStream_t SimulatedCuda::add_stream(int device) {
  const uint64_t seed = random_at(options_.seed, 1, streams_made_++);
  auto made = std::make_unique<CUstream_st>(gpu_, device, seed);
  const cudaStream_t stream = made.get();
  streams_.emplace(stream, std::move(made));
  order_.push_back(stream);
  return stream;
}

void SimulatedCuda::remove_stream(cudaStream_t stream) {
  std::erase(order_, stream);
  streams_.erase(stream);
}

cudaEvent_t SimulatedCuda::add_event() {
  auto made = std::make_unique<CUevent_st>();
  const cudaEvent_t event = made.get();
  events_.emplace(event, std::move(made));
  return event;
}

}  // namespace spillway::emulator
