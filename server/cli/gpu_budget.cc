#include "server/cli/gpu_budget.h"

#include <algorithm>
#include <string>

#include "server/cli/sizes.h"

namespace spillway::server {
namespace {

// CUDA gives memory in pieces of this.
constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

}  // namespace

Result<uint64_t> kv_bytes_on_gpu(const kernels::GpuMemory& memory, double utilization,
                                 uint64_t needed_bytes) {
  const auto allowed = static_cast<uint64_t>(utilization * static_cast<double>(memory.all_bytes));
  const uint64_t taken = memory.all_bytes - std::min(memory.free_bytes, memory.all_bytes);
  // A piece for what the allocation itself rounds up to.
  const uint64_t others = taken + needed_bytes + kPieceBytes;
  if (others + kPieceBytes > allowed) {
    return Error{ErrorCode::kResourceExhausted,
                 "no GPU memory is left for KV pages: of its " + bytes_text(memory.all_bytes) +
                     " all that runs here may take " + bytes_text(allowed) +
                     " (--gpu-memory-utilization), and weights, the room for a step and other "
                     "processes take " +
                     bytes_text(others) +
                     ". End other processes, raise --gpu-memory-utilization, lower "
                     "--max-num-batched-tokens, or take a smaller model, another GPU (--device "
                     "cuda:1) or the processor (--device cpu)"};
  }
  return (allowed - others) / kPieceBytes * kPieceBytes;
}

}  // namespace spillway::server
