// NCCL without GPUs: the functions of nccl_api.h on the streams of the simulated CUDA runtime,
// which must have as many devices as there are ranks.
//
// A group of sends and receives is, on each rank's stream, one wait for all of its peers to get as
// far: what they send is copied once both are there, and a sender goes on once its own was taken.
// So a send whose receive stands behind it on its peer's stream, where the same is true of the
// peer, waits for ever, as NCCL's does. What NCCL would answer with garbage or a stall is the
// runtime's misuse: calls outside of a group, memory or a stream that is another GPU's, other
// counts at the two ends, communicators that are gone, or that go while something waits for them.
//
// Thread: the runtime's caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/nccl_api.h"
#include "tests/emulator/simulated_cuda.h"

namespace spillway::emulator {

struct NcclClique;

// The handle is the communicator of one rank.
struct NcclCall {
  bool sends = false;
  std::byte* at = nullptr;
  size_t bytes = 0;
  int peer = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
};

class SimulatedNccl {
 public:
  // Becomes what the functions call. REQUIRES: there is no other; `cuda` outlives it.
  explicit SimulatedNccl(SimulatedCuda& cuda);
  ~SimulatedNccl();
  SimulatedNccl(const SimulatedNccl&) = delete;
  SimulatedNccl& operator=(const SimulatedNccl&) = delete;

  kernels::cuda::NcclApi api() const;
  // The call of that name that comes after `after` others fails, and does nothing.
  void fail_call(const std::string& call, kernels::cuda::NcclResult result, uint32_t after = 0);
  // What is sent from now on never comes, and nobody is told.
  void cut_links() { cut_ = true; }
  // What communicators answer who asks for errors.
  void set_async_error(kernels::cuda::NcclResult error) { async_error_ = error; }
  size_t living() const { return comms_.size(); }  // communicators
  uint64_t aborted() const { return aborted_; }

  // For the functions themselves.
  static SimulatedNccl& current();
  kernels::cuda::NcclResult begin(const std::string& call);
  kernels::cuda::NcclResult init_all(ncclComm** comms, int count, const int* devices);
  kernels::cuda::NcclResult end_comm(const std::string& call, ncclComm* comm, bool abort);
  kernels::cuda::NcclResult async_error(ncclComm* comm, kernels::cuda::NcclResult* error);
  kernels::cuda::NcclResult start_group();
  kernels::cuda::NcclResult end_group();
  kernels::cuda::NcclResult add(const std::string& call, const NcclCall& one);

 private:
  bool known(const std::string& call, const ncclComm* comm);  // false: reported
  void check(const std::string& call, const NcclCall& one);
  void enqueue(const std::vector<NcclCall>& of_one_stream);

  SimulatedCuda& cuda_;
  std::vector<std::unique_ptr<ncclComm>> comms_;
  std::vector<NcclCall> group_;
  uint32_t depth_ = 0;
  bool cut_ = false;
  kernels::cuda::NcclResult async_error_{};
  uint64_t aborted_ = 0;
  struct Failure {
    std::string call;
    kernels::cuda::NcclResult result;
    uint32_t after;
  };
  std::vector<Failure> failures_;
};

}  // namespace spillway::emulator
