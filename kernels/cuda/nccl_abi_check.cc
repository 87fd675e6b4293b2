// Holds nccl_api.h against NCCL's own header, where the toolkit's folder or the system has one:
// what differs does not compile. Not with the simulated runtime, for nccl.h includes CUDA's.
#include "kernels/cuda/nccl_api.h"

#if !defined(SPILLWAY_CUDA_SIMULATED_RUNTIME) && __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

namespace spillway::kernels::cuda {
namespace {

// A type of NCCL's in our words.
template <class T>
struct Ours {
  using Type = T;
};
template <>
struct Ours<ncclResult_t> {
  using Type = NcclResult;
};
template <>
struct Ours<ncclResult_t*> {
  using Type = NcclResult*;
};
template <>
struct Ours<ncclDataType_t> {
  using Type = NcclType;
};
template <class Return, class... Arguments>
struct Ours<Return(Arguments...)> {
  using Type = typename Ours<Return>::Type(typename Ours<Arguments>::Type...);
};
template <auto& function, class Expected>
constexpr bool kSame =
    std::is_same_v<typename Ours<std::remove_reference_t<decltype(function)>>::Type, Expected>;

static_assert(kSame<ncclCommInitAll, NcclCommInitAll>);
static_assert(kSame<ncclCommDestroy, NcclCommDestroy>);
static_assert(kSame<ncclCommAbort, NcclCommAbort>);
static_assert(kSame<ncclCommGetAsyncError, NcclCommGetAsyncError>);
static_assert(kSame<ncclGetErrorString, NcclGetErrorString>);
static_assert(kSame<ncclGroupStart, NcclGroupStart>);
static_assert(kSame<ncclGroupEnd, NcclGroupEnd>);
static_assert(kSame<ncclSend, NcclSend>);
static_assert(kSame<ncclRecv, NcclRecv>);
static_assert(sizeof(ncclResult_t) == sizeof(NcclResult));
static_assert(sizeof(ncclDataType_t) == sizeof(NcclType));
static_assert(static_cast<NcclResult>(ncclSuccess) == NcclResult::kSuccess);
static_assert(static_cast<NcclResult>(ncclSystemError) == NcclResult::kSystemError);
static_assert(static_cast<NcclResult>(ncclInvalidUsage) == NcclResult::kInvalidUsage);
static_assert(static_cast<NcclType>(ncclFloat32) == NcclType::kFloat32);

}  // namespace
}  // namespace spillway::kernels::cuda
#endif
