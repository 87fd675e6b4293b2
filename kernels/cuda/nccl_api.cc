#include "kernels/cuda/nccl_api.h"

#include <dlfcn.h>

#include <string>

namespace spillway::kernels::cuda {
namespace {

// The functions of one library; the first that it lacks is remembered.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}

  template <class Function>
  void find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

Error unavailable(const std::string& why) {
  return Error{ErrorCode::kUnavailable,
               "no NCCL, which GPUs need to share a model's layers: " + why +
                   "; install NCCL 2.7 or later (libnccl2), or add the folder of libnccl.so.2 to "
                   "LD_LIBRARY_PATH"};
}

}  // namespace

Result<NcclApi> load_nccl(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return unavailable(why != nullptr ? why : library);
  }
  Functions functions(handle);
  NcclApi api;
  functions.find("ncclCommInitAll", api.comm_init_all);
  functions.find("ncclCommDestroy", api.comm_destroy);
  functions.find("ncclCommAbort", api.comm_abort);
  functions.find("ncclCommGetAsyncError", api.comm_async_error);
  functions.find("ncclGetErrorString", api.error_string);
  functions.find("ncclGroupStart", api.group_start);
  functions.find("ncclGroupEnd", api.group_end);
  functions.find("ncclSend", api.send);
  functions.find("ncclRecv", api.recv);
  if (!functions.missing().empty()) {
    dlclose(handle);
    return unavailable(std::string(library) + " has no " + functions.missing());
  }
  return api;
}

}  // namespace spillway::kernels::cuda
