// NCCL's functions that collectives need, found in libnccl.so.2 when the program runs: it starts
// without, and is built without NCCL's header. What is declared here are facts of its ABI, the same
// since 2.7; nccl_abi_check.cc holds them against nccl.h where there is one.
//
// Thread: any; a communicator's calls are its owner's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/result.h"

struct CUstream_st;
struct ncclComm;

namespace spillway::kernels::cuda {

enum class NcclResult : uint32_t { kSuccess = 0, kSystemError = 2, kInvalidUsage = 5 };
enum class NcclType : uint32_t { kFloat32 = 7 };

using NcclCommInitAll = NcclResult(ncclComm** comms, int count, const int* devices);
using NcclCommDestroy = NcclResult(ncclComm* comm);
using NcclCommAbort = NcclResult(ncclComm* comm);
using NcclCommGetAsyncError = NcclResult(ncclComm* comm, NcclResult* error);
using NcclGetErrorString = const char*(NcclResult result);
using NcclGroupStart = NcclResult();
using NcclGroupEnd = NcclResult();
using NcclSend = NcclResult(const void* from, size_t count, NcclType type, int peer, ncclComm* comm,
                            CUstream_st* stream);
using NcclRecv = NcclResult(void* to, size_t count, NcclType type, int peer, ncclComm* comm,
                            CUstream_st* stream);

struct NcclApi {
  NcclCommInitAll* comm_init_all = nullptr;
  NcclCommDestroy* comm_destroy = nullptr;
  NcclCommAbort* comm_abort = nullptr;
  NcclCommGetAsyncError* comm_async_error = nullptr;
  NcclGetErrorString* error_string = nullptr;
  NcclGroupStart* group_start = nullptr;
  NcclGroupEnd* group_end = nullptr;
  NcclSend* send = nullptr;
  NcclRecv* recv = nullptr;
};

// The library stays until the process ends. kUnavailable: there is none of that name where the
// system looks for libraries, or one too old; the message says what to install.
Result<NcclApi> load_nccl(const char* library = "libnccl.so.2");

}  // namespace spillway::kernels::cuda
