#include "kernels/cuda/cuda_graph.h"

#include "runtime/check.h"

namespace spillway::kernels::cuda {
namespace {

Error refused(const char* call, cudaError_t error) {
  cudaGetLastError();  // else CUDA tells of it again where nothing is wrong
  return {ErrorCode::kUnavailable, error_text(call, error)};
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(std::shared_ptr<Health> health, cudaStream_t stream, cudaGraphExec_t native)
      : health_(std::move(health)), stream_(stream), native_(native) {}
  ~CudaGraph() override {
    // One that is under way is freed by the driver when it has ended.
    if (!health_->lost()) health_->ok(cudaGraphExecDestroy(native_), "cudaGraphExecDestroy");
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  Result<> launch() override {
    if (!health_->enter()) return *health_->failure();
    const cudaError_t error = cudaGraphLaunch(native_, stream_);
    if (error != cudaSuccess) return refused("cudaGraphLaunch", error);
    return {};
  }

 private:
  const std::shared_ptr<Health> health_;
  const cudaStream_t stream_;
  const cudaGraphExec_t native_;
};

}  // namespace

Result<std::unique_ptr<Graph>> CudaGraphs::capture(const std::function<Result<>()>& enqueue) {
  if (!health_->enter()) return *health_->failure();
  // This thread's calls alone are held to what a capture allows: others may free memory meanwhile.
  const cudaError_t begun = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (begun != cudaSuccess) return refused("cudaStreamBeginCapture", begun);
  const Result<> enqueued = enqueue();
  cudaGraph_t captured = nullptr;  // and null still, where something has spoilt the capture
  const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
  cudaGraphExec_t native = nullptr;
  cudaError_t made = cudaSuccess;
  if (captured != nullptr) {
    if (enqueued && ended == cudaSuccess)
      made = cudaGraphInstantiateWithFlags(&native, captured, 0);
    health_->ok(cudaGraphDestroy(captured), "cudaGraphDestroy");
  }
  if (!enqueued) {
    cudaGetLastError();
    return enqueued.error();
  }
  if (ended != cudaSuccess) return refused("cudaStreamEndCapture", ended);
  CHECK(captured != nullptr);
  if (made != cudaSuccess) return refused("cudaGraphInstantiate", made);
  return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(health_, stream_, native));
}

}  // namespace spillway::kernels::cuda
