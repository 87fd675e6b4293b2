// CUDA's calls, on the simulated runtime. Each does what CUDA's documentation says of it, and
// reports what that calls undefined.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/emulator/simulated_cuda.h"

namespace {

using spillway::emulator::Capture;
using spillway::emulator::CapturedEvent;
using spillway::emulator::Operation;
using spillway::emulator::Recording;
using spillway::emulator::SimulatedCuda;
using spillway::emulator::SimulatedMemory;
using Waits = SimulatedCuda::Waits;

thread_local int this_threads_device = 0;  // as in CUDA

SimulatedCuda& cuda() { return SimulatedCuda::current(); }

std::unique_ptr<Operation> make(Operation::Kind kind) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  return operation;
}

// What every call that enqueues begins with.
cudaError_t begin_on(const char* call, cudaStream_t stream) {
  if (const cudaError_t error = cuda().begin(call); error != cudaSuccess) return error;
  if (!cuda().known(call, stream)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr && stream->capture->spoilt) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (stream->device() == this_threads_device) return cudaSuccess;
  cuda().report(std::string(call) + " on a stream that is not the current device's");
  return cudaErrorInvalidResourceHandle;
}

std::byte* bytes_of(const void* at) { return static_cast<std::byte*>(const_cast<void*>(at)); }

bool overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// A wait for an event that was recorded in a capture: the stream captures too from then on.
cudaError_t wait_in_capture(cudaStream_t stream, const CapturedEvent& event) {
  Capture& capture = *event.capture;
  if (capture.ended) {
    cuda().report("cudaStreamWaitEvent for an event of a capture that has ended");
    if (stream->capture != nullptr) stream->capture->spoilt = true;
    return cudaErrorCapturedEvent;
  }
  if (stream->capture != nullptr && stream->capture != event.capture) {
    stream->capture->spoilt = true;
    cuda().spoil(capture, "cudaStreamWaitEvent for an event of another capture");
    return cudaErrorStreamCaptureMerge;
  }
  stream->capture = event.capture;
  capture.order(stream, event.after);
  return cudaSuccess;
}

// The driver's calls, which come by their address alone.
CUresult word_call(const char* call, bool can, Operation::Kind kind, CUstream stream,
                   CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  if (!can) return CUDA_ERROR_NOT_SUPPORTED;
  if (const cudaError_t error = begin_on(call, stream); error != cudaSuccess) {
    return static_cast<CUresult>(error);
  }
  if (stream->capture != nullptr) {  // some drivers would
    cuda().spoil(*stream->capture, std::string(call) + " while the stream captures");
    return static_cast<CUresult>(cudaErrorStreamCaptureUnsupported);
  }
  std::byte* const host = cuda().memory().host_of(address, sizeof(uint32_t));
  if (host == nullptr || address % sizeof(uint32_t) != 0 || flags != 0) {
    cuda().report(std::string(call) + " names no word that the GPU sees");
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto operation = make(kind);
  operation->word = reinterpret_cast<std::atomic<uint32_t>*>(host);
  operation->word_value = value;
  cuda().enqueue(stream, std::move(operation));
  return CUDA_SUCCESS;
}

CUresult write_word(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return word_call("cuStreamWriteValue32", cuda().options().write_words,
                   Operation::Kind::kWriteWord, stream, address, value, flags);
}

CUresult wait_word(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return word_call("cuStreamWaitValue32", cuda().options().wait_words, Operation::Kind::kWaitWord,
                   stream, address, value, flags);
}

}  // namespace

cudaError_t SimulatedCuda::launch(cudaStream_t stream, std::function<void()> kernel) {
  if (const cudaError_t error = begin_on("launch", stream); error != cudaSuccess) return error;
  auto operation = make(Operation::Kind::kKernel);
  operation->kernel = std::move(kernel);
  enqueue(stream, std::move(operation));
  return options_.at_once ? kept_error() : cudaSuccess;
}

cudaError_t SimulatedCuda::launch(cudaStream_t stream, const kernels::cuda::LaunchShape& shape,
                                  std::function<void()> kernel) {
  return launch(stream,
                [stream, shape, kernel = std::move(kernel)] { stream->run_blocks(shape, kernel); });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = cuda().options().driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (cuda().options().driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  *count = cuda().options().devices;
  if (const cudaError_t error = cuda().begin("cudaGetDeviceCount"); error != cudaSuccess) {
    return error;
  }
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = cuda().begin("cudaSetDevice");
  if (device < 0 || device >= cuda().options().devices) return cudaErrorInvalidDevice;
  this_threads_device = device;  // also where an error of before is returned
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int device) {
  const cudaError_t error = cuda().begin("cudaGetDeviceProperties");
  if (error != cudaSuccess) return error;
  if (device < 0 || device >= cuda().options().devices) return cudaErrorInvalidDevice;
  std::snprintf(about->name, sizeof about->name, "simulated");
  about->totalGlobalMem = cuda().options().device_bytes;
  about->major = 9;
  about->minor = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const cudaError_t error = cuda().begin("cudaDeviceSynchronize", Waits::kForTheGpu);
  cuda().check_current("cudaDeviceSynchronize", this_threads_device);
  if (error != cudaSuccess && cuda().kept_error() == cudaSuccess) return error;
  return cuda().wait_for_device("cudaDeviceSynchronize", this_threads_device);
}

cudaError_t cudaDeviceReset() {
  const cudaError_t error = cuda().begin("cudaDeviceReset", Waits::kForTheGpu);
  cuda().check_current("cudaDeviceReset", this_threads_device);
  if (error != cudaSuccess && cuda().kept_error() == cudaSuccess) return error;
  cuda().reset();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cuda().kept_error(); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    default:
      return "another error";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "a simulated error";
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** found, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  const cudaError_t error = cuda().begin("cudaGetDriverEntryPointByVersion");
  if (error != cudaSuccess) return error;
  *found = nullptr;
  if (std::strcmp(symbol, "cuStreamWriteValue32") == 0) {
    *found = reinterpret_cast<void*>(&write_word);
  } else if (std::strcmp(symbol, "cuStreamWaitValue32") == 0) {
    *found = reinterpret_cast<void*>(&wait_word);
  }
  *status = *found != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** at, size_t bytes) {
  const cudaError_t error = cuda().begin("cudaMalloc", Waits::kForTheGpu);
  if (error != cudaSuccess) return error;
  *at = cuda().memory().allocate(bytes, this_threads_device);
  return *at != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* at) {
  const cudaError_t error = cuda().begin("cudaFree", Waits::kForTheGpu);
  if (error != cudaSuccess) return error;
  const auto* const region = cuda().memory().find(at);
  if (region != nullptr) cuda().check_unused("cudaFree", region->at, region->bytes);
  if (cuda().memory().free(at)) return cudaSuccess;
  cuda().report("cudaFree of what cudaMalloc did not give");
  return cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  const cudaError_t error = cuda().begin("cudaMemGetInfo");
  if (error != cudaSuccess) return error;
  *free_bytes = cuda().memory().device_bytes_free();
  *all_bytes = cuda().memory().device_bytes();
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned int) {
  const cudaError_t error = cuda().begin("cudaHostRegister", Waits::kForTheGpu);
  if (error != cudaSuccess) return error;
  switch (cuda().memory().add_host(at, bytes)) {
    case SimulatedMemory::Registered::kYes:
      return cudaSuccess;
    case SimulatedMemory::Registered::kAlready:
      cuda().report("cudaHostRegister of memory that is registered");
      return cudaErrorHostMemoryAlreadyRegistered;
    case SimulatedMemory::Registered::kTooMuch:
      return cudaErrorMemoryAllocation;
  }
  return cudaErrorInvalidValue;
}

cudaError_t cudaHostUnregister(void* at) {
  const cudaError_t error = cuda().begin("cudaHostUnregister", Waits::kForTheGpu);
  if (error != cudaSuccess) return error;
  const auto* const region = cuda().memory().find(at);
  if (region != nullptr) cuda().check_unused("cudaHostUnregister", region->at, region->bytes);
  if (cuda().memory().remove_host(at)) return cudaSuccess;
  cuda().report("cudaHostUnregister of memory that is not registered");
  return cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int) {
  const cudaError_t error = cuda().begin("cudaHostGetDevicePointer");
  if (error != cudaSuccess) return error;
  const auto* const region = cuda().memory().find(host);
  if (region == nullptr || region->on_device()) return cudaErrorInvalidValue;
  const uint64_t alias = reinterpret_cast<uintptr_t>(host) + SimulatedMemory::kDeviceAlias;
  *device = reinterpret_cast<void*>(alias);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  const cudaError_t error = cuda().begin("cudaStreamCreateWithFlags", Waits::kForTheGpu);
  if (error != cudaSuccess) return error;
  if (flags != cudaStreamNonBlocking) cuda().report("a stream that waits for the default one");
  *stream = cuda().add_stream(this_threads_device);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = begin_on("cudaStreamDestroy", stream);
  if (error != cudaSuccess) return error;
  if (!stream->idle()) cuda().report("cudaStreamDestroy of a stream that has yet to run");
  if (stream->capture != nullptr) {
    cuda().spoil(*stream->capture, "cudaStreamDestroy of a stream that captures");
    if (stream->capture->origin == stream) cuda().captures_end(stream->capture);
  }
  cuda().remove_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const cudaError_t error = cuda().begin("cudaStreamSynchronize", Waits::kForTheGpu);
  if (error != cudaSuccess) return error;
  if (!cuda().known("cudaStreamSynchronize", stream)) return cudaErrorInvalidResourceHandle;
  return cuda().wait_for_stream("cudaStreamSynchronize", stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  const cudaError_t error = begin_on("cudaStreamWaitEvent", stream);
  if (error != cudaSuccess) return error;
  if (!cuda().known("cudaStreamWaitEvent", event)) return cudaErrorInvalidResourceHandle;
  if (event->captured.capture != nullptr) return wait_in_capture(stream, event->captured);
  if (stream->capture != nullptr) {
    cuda().spoil(*stream->capture, "cudaStreamWaitEvent for what lies outside of the capture");
    return cudaErrorStreamCaptureIsolation;
  }
  if (event->last == nullptr) return cudaSuccess;  // as CUDA has it: nothing to wait for
  auto operation = make(Operation::Kind::kWaitEvent);
  operation->recording = event->last;
  cuda().enqueue(stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const cudaError_t error = cuda().begin("cudaEventCreateWithFlags");
  if (error != cudaSuccess) return error;
  if (flags != cudaEventDisableTiming) cuda().report("an event that takes the time");
  *event = cuda().add_event();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t error = cuda().begin("cudaEventDestroy");
  if (error != cudaSuccess) return error;
  if (!cuda().known("cudaEventDestroy", event)) return cudaErrorInvalidResourceHandle;
  cuda().remove_event(event);  // what waits for it still does, as CUDA has it
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const cudaError_t error = begin_on("cudaEventRecord", stream);
  if (error != cudaSuccess) return error;
  if (!cuda().known("cudaEventRecord", event)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {  // a place in the graph's order, which nobody else comes to
    event->captured = {stream->capture, stream->capture->streams[stream]};
    return cudaSuccess;
  }
  event->captured = {};
  auto operation = make(Operation::Kind::kRecord);
  operation->recording = event->last = std::make_shared<Recording>(false);
  cuda().enqueue(stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const cudaError_t error = cuda().begin("cudaEventQuery");
  if (error != cudaSuccess) return error;
  if (!cuda().known("cudaEventQuery", event)) return cudaErrorInvalidResourceHandle;
  if (event->captured.capture != nullptr) {
    cuda().spoil(*event->captured.capture, "cudaEventQuery of an event that was captured");
    return cudaErrorCapturedEvent;
  }
  const bool there = event->last == nullptr || event->last->load(std::memory_order_acquire);
  return there ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  const cudaError_t error = begin_on("cudaMemsetAsync", stream);
  if (error != cudaSuccess) return error;
  if (!cuda().check_copy("cudaMemsetAsync", at, bytes)) return cudaErrorInvalidValue;
  auto operation = make(Operation::Kind::kSet);
  operation->set = {bytes_of(at), bytes};
  operation->value = value;
  cuda().enqueue(stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const cudaError_t error = begin_on("cudaMemcpyAsync", stream);
  if (error != cudaSuccess) return error;
  if (kind != cudaMemcpyDefault) return cudaErrorInvalidValue;
  const bool may = cuda().check_copy("cudaMemcpyAsync", to, bytes);
  if (!cuda().check_copy("cudaMemcpyAsync", from, bytes) || !may) return cudaErrorInvalidValue;
  auto operation = make(Operation::Kind::kCopies);
  operation->copies.push_back({bytes_of(to), bytes_of(from), bytes});
  cuda().enqueue(stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes,
                                 size_t count, cudaMemcpyAttributes* how, size_t* first_of_how,
                                 size_t hows, cudaStream_t stream) {
  const char* const call = "cudaMemcpyBatchAsync";
  const cudaError_t error = begin_on(call, stream);
  if (error != cudaSuccess) return error;
  if (!cuda().options().batches) return cudaErrorNotSupported;
  if (stream->capture != nullptr) {  // which goes on without it
    cuda().report(std::string(call) + " while the stream captures");
    return cudaErrorStreamCaptureUnsupported;
  }
  if (count == 0 || hows != 1 || first_of_how[0] != 0 ||
      how[0].srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    cuda().report(std::string(call) + " that says not how");
    return cudaErrorInvalidValue;
  }
  auto operation = make(Operation::Kind::kCopies);
  for (size_t i = 0; i < count; ++i) {
    const bool may = cuda().check_copy(call, to[i], bytes[i]);
    if (!cuda().check_copy(call, from[i], bytes[i]) || !may) return cudaErrorInvalidValue;
    for (const auto& other : operation->copies) {
      if (overlap(bytes_of(to[i]), bytes[i], other.to, other.bytes) ||
          overlap(bytes_of(to[i]), bytes[i], other.from, other.bytes) ||
          overlap(bytes_of(from[i]), bytes[i], other.to, other.bytes)) {
        cuda().report(std::string(call) + " of copies that depend on each other");
      }
    }
    operation->copies.push_back({bytes_of(to[i]), bytes_of(from[i]), bytes[i]});
  }
  cuda().enqueue(stream, std::move(operation));
  return cudaSuccess;
}
