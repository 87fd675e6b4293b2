// The graphs of one of a CUDA device's streams: graph.h on CUDA's stream capture. Refusals are
// their caller's to see and no failure of the device, for all can be launched without a graph.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "kernels/cuda/graph.h"
#include "kernels/cuda/health.h"
#include "runtime/result.h"

namespace spillway::kernels::cuda {

class CudaGraphs final : public GraphMaker {
 public:
  CudaGraphs(std::shared_ptr<Health> health, cudaStream_t stream)
      : health_(std::move(health)), stream_(stream) {}

  Result<std::unique_ptr<Graph>> capture(const std::function<Result<>()>& enqueue) override;

 private:
  const std::shared_ptr<Health> health_;
  const cudaStream_t stream_;
};

}  // namespace spillway::kernels::cuda
