#include "tests/emulator/simulated_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/check.h"

namespace spillway::emulator {

using kernels::cuda::NcclResult;
using kernels::cuda::NcclType;

// What one rank sends another in one call.
struct NcclTransfer {
  std::shared_ptr<Recording> there = std::make_shared<Recording>(false);  // the sender's stream is
  std::shared_ptr<Recording> taken = std::make_shared<Recording>(false);
  bool sent = false, received = false;  // said so by who enqueues
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

struct NcclClique {
  using Key = std::pair<int, int>;  // sender, receiver
  std::atomic<bool> aborted{false};
  std::map<Key, std::vector<std::shared_ptr<NcclTransfer>>> transfers;

  // The first that this end has not said to be its.
  std::shared_ptr<NcclTransfer> next(const Key& key, bool NcclTransfer::* said) {
    auto& all = transfers[key];
    const auto found = std::find_if(all.begin(), all.end(), [&](auto& t) { return !((*t).*said); });
    std::shared_ptr<NcclTransfer> transfer;
    if (found != all.end()) {
      transfer = *found;
    } else {
      transfer = all.emplace_back(std::make_shared<NcclTransfer>());
    }
    (*transfer).*said = true;
    return transfer;
  }
  bool idle() const {
    for (const auto& [key, all] : transfers) {
      for (const auto& one : all) {
        if (!one->taken->load(std::memory_order_acquire)) return false;
      }
    }
    return true;
  }
  void abort() {
    aborted.store(true, std::memory_order_release);
    for (const auto& [key, all] : transfers) {
      for (const auto& one : all) {
        one->there->store(true, std::memory_order_release);
        one->taken->store(true, std::memory_order_release);
      }
    }
  }
};

}  // namespace spillway::emulator

struct ncclComm {
  int rank = 0;
  int device = 0;
  std::shared_ptr<spillway::emulator::NcclClique> clique;
};

namespace spillway::emulator {
namespace {

SimulatedNccl* the_library = nullptr;  // its functions name none

SimulatedNccl& nccl() { return SimulatedNccl::current(); }

NcclResult init_all(ncclComm** comms, int count, const int* devices) {
  return nccl().init_all(comms, count, devices);
}
NcclResult destroy(ncclComm* comm) { return nccl().end_comm("ncclCommDestroy", comm, false); }
NcclResult abort(ncclComm* comm) { return nccl().end_comm("ncclCommAbort", comm, true); }
NcclResult async_error(ncclComm* comm, NcclResult* error) {
  return nccl().async_error(comm, error);
}
const char* error_string(NcclResult result) {
  return result == NcclResult::kSystemError ? "unhandled system error" : "a simulated error";
}
NcclResult group_start() { return nccl().start_group(); }
NcclResult group_end() { return nccl().end_group(); }

NcclResult send(const void* from, size_t count, NcclType type, int peer, ncclComm* comm,
                CUstream_st* stream) {
  CHECK(type == NcclType::kFloat32);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(from));
  return nccl().add("ncclSend", {true, at, count * sizeof(float), peer, comm, stream});
}
NcclResult recv(void* to, size_t count, NcclType type, int peer, ncclComm* comm,
                CUstream_st* stream) {
  CHECK(type == NcclType::kFloat32);
  auto* const at = static_cast<std::byte*>(to);
  return nccl().add("ncclRecv", {false, at, count * sizeof(float), peer, comm, stream});
}

std::unique_ptr<Operation> wait_for(std::shared_ptr<Recording> recording) {
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kWaitEvent;
  operation->recording = std::move(recording);
  return operation;
}

std::unique_ptr<Operation> kernel(std::function<void()> work) {
  auto operation = std::make_unique<Operation>();
  operation->kernel = std::move(work);
  operation->reaches_all = true;
  return operation;
}

}  // namespace

SimulatedNccl::SimulatedNccl(SimulatedCuda& cuda) : cuda_(cuda) {
  CHECK(the_library == nullptr);
  the_library = this;
}

SimulatedNccl::~SimulatedNccl() {
  CHECK(depth_ == 0);
  the_library = nullptr;
}

SimulatedNccl& SimulatedNccl::current() {
  CHECK(the_library != nullptr);
  return *the_library;
}

kernels::cuda::NcclApi SimulatedNccl::api() const {
  return {.comm_init_all = emulator::init_all,
          .comm_destroy = emulator::destroy,
          .comm_abort = emulator::abort,
          .comm_async_error = emulator::async_error,
          .error_string = emulator::error_string,
          .group_start = emulator::group_start,
          .group_end = emulator::group_end,
          .send = emulator::send,
          .recv = emulator::recv};
}

void SimulatedNccl::fail_call(const std::string& call, NcclResult result, uint32_t after) {
  failures_.push_back({call, result, after});
}

NcclResult SimulatedNccl::begin(const std::string& call) {
  for (size_t i = 0; i < failures_.size(); ++i) {
    if (failures_[i].call != call || failures_[i].after-- > 0) continue;
    const NcclResult result = failures_[i].result;
    failures_.erase(failures_.begin() + static_cast<ptrdiff_t>(i));
    return result;
  }
  return NcclResult::kSuccess;
}

bool SimulatedNccl::known(const std::string& call, const ncclComm* comm) {
  const bool there = std::any_of(comms_.begin(), comms_.end(),
                                 [comm](const auto& one) { return one.get() == comm; });
  if (!there) cuda_.report(call + " of a communicator that there is none of");
  return there;
}

NcclResult SimulatedNccl::init_all(ncclComm** comms, int count, const int* devices) {
  if (const NcclResult failed = begin("ncclCommInitAll"); failed != NcclResult::kSuccess) {
    return failed;
  }
  const auto clique = std::make_shared<NcclClique>();
  for (int rank = 0; rank < count; ++rank) {
    if (std::count(devices, devices + count, devices[rank]) != 1 ||
        devices[rank] >= cuda_.options().devices) {
      return NcclResult::kInvalidUsage;
    }
  }
  for (int rank = 0; rank < count; ++rank) {
    comms_.push_back(std::make_unique<ncclComm>(ncclComm{rank, devices[rank], clique}));
    comms[rank] = comms_.back().get();
  }
  return NcclResult::kSuccess;
}

NcclResult SimulatedNccl::end_comm(const std::string& call, ncclComm* comm, bool abort) {
  if (!known(call, comm)) return NcclResult::kInvalidUsage;
  if (abort) {
    ++aborted_;
    comm->clique->abort();
  } else if (!comm->clique->idle()) {
    cuda_.report(call + " of a communicator that something waits for");
  }
  std::erase_if(comms_, [comm](const auto& one) { return one.get() == comm; });
  return NcclResult::kSuccess;
}

NcclResult SimulatedNccl::async_error(ncclComm* comm, NcclResult* error) {
  if (const NcclResult failed = begin("ncclCommGetAsyncError"); failed != NcclResult::kSuccess) {
    return failed;
  }
  if (!known("ncclCommGetAsyncError", comm)) return NcclResult::kInvalidUsage;
  *error = async_error_;
  return NcclResult::kSuccess;
}

NcclResult SimulatedNccl::start_group() {
  if (const NcclResult failed = begin("ncclGroupStart"); failed != NcclResult::kSuccess) {
    return failed;
  }
  ++depth_;
  return NcclResult::kSuccess;
}

NcclResult SimulatedNccl::end_group() {
  if (depth_ == 0) {
    cuda_.report("ncclGroupEnd without its begin");
    return NcclResult::kInvalidUsage;
  }
  if (--depth_ > 0) return NcclResult::kSuccess;
  const std::vector<NcclCall> group = std::exchange(group_, {});
  if (const NcclResult failed = begin("ncclGroupEnd"); failed != NcclResult::kSuccess) {
    return failed;
  }
  std::vector<cudaStream_t> streams;  // in the order in which the group names them
  for (const NcclCall& one : group) {
    if (std::find(streams.begin(), streams.end(), one.stream) == streams.end()) {
      streams.push_back(one.stream);
    }
  }
  for (const cudaStream_t stream : streams) {
    std::vector<NcclCall> its;
    std::copy_if(group.begin(), group.end(), std::back_inserter(its),
                 [stream](const NcclCall& one) { return one.stream == stream; });
    enqueue(its);
  }
  return NcclResult::kSuccess;
}

void SimulatedNccl::check(const std::string& call, const NcclCall& one) {
  const auto* const region = cuda_.memory().find(one.at);
  if (region == nullptr || !region->holds(one.at, one.bytes)) {
    cuda_.report(call + " of memory that is no GPU's, or past its end");
  } else if (region->device != one.comm->device) {
    cuda_.report(call + " of memory that is another GPU's");
  }
  if (one.stream->device() != one.comm->device) {
    cuda_.report(call + " on a stream that is another GPU's");
  }
  if (one.peer == one.comm->rank) cuda_.report(call + " to itself");
}

NcclResult SimulatedNccl::add(const std::string& call, const NcclCall& one) {
  if (const NcclResult failed = begin(call); failed != NcclResult::kSuccess) return failed;
  if (!known(call, one.comm) || !cuda_.known(call.c_str(), one.stream)) {
    return NcclResult::kInvalidUsage;
  }
  check(call, one);
  if (depth_ == 0) {
    cuda_.report(call + " outside of a group, where one thread has several ranks");
    enqueue({one});
    return NcclResult::kSuccess;
  }
  group_.push_back(one);
  return NcclResult::kSuccess;
}

void SimulatedNccl::enqueue(const std::vector<NcclCall>& of_one_stream) {
  struct End {
    std::shared_ptr<NcclTransfer> transfer;
    std::byte* to;
    size_t bytes;
  };
  std::vector<End> sends, receives;
  const auto clique = of_one_stream.front().comm->clique;
  for (const NcclCall& one : of_one_stream) {
    const NcclClique::Key key = one.sends ? NcclClique::Key{one.comm->rank, one.peer}
                                          : NcclClique::Key{one.peer, one.comm->rank};
    const auto said = one.sends ? &NcclTransfer::sent : &NcclTransfer::received;
    const auto transfer = clique->next(key, said);
    if (one.sends) transfer->from = one.at;
    if (transfer->sent && transfer->received && transfer->bytes != one.bytes) {
      cuda_.report("as much is not received as is sent");
    }
    transfer->bytes = one.bytes;
    (one.sends ? sends : receives).push_back({transfer, one.at, one.bytes});
  }
  const cudaStream_t stream = of_one_stream.front().stream;
  if (!cut_) {
    cuda_.enqueue(stream, kernel([sends] {
                    for (const End& end : sends) {
                      end.transfer->there->store(true, std::memory_order_release);
                    }
                  }));
  }
  for (const End& end : receives) cuda_.enqueue(stream, wait_for(end.transfer->there));
  cuda_.enqueue(stream, kernel([receives, clique] {
                  for (const End& end : receives) {
                    if (!clique->aborted.load(std::memory_order_acquire)) {
                      std::memcpy(end.to, end.transfer->from,
                                  std::min(end.bytes, end.transfer->bytes));
                    }
                    end.transfer->taken->store(true, std::memory_order_release);
                  }
                }));
  for (const End& end : sends) cuda_.enqueue(stream, wait_for(end.transfer->taken));
}

}  // namespace spillway::emulator
