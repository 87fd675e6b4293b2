// One of a CUDA device's streams. Copies that follow one another are gathered and go out as one
// batch when something else comes, for a call costs microseconds and a batch of pages one call.
//
// Bound: kCopiesMax gathered; the next one sends them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_parts.h"
#include "kernels/device.h"

namespace spillway::kernels::cuda {

class CudaStream final : public Stream {
 public:
  // A page is 100 KB to some MB: more than a link moves while the next batch is made.
  static constexpr size_t kCopiesMax = 128;

  // Owns `native`. `index` is its number in the device, below kStreams.
  CudaStream(std::shared_ptr<CudaParts> parts, cudaStream_t native, uint32_t index);
  ~CudaStream() override;  // waits for what is enqueued; gates that hold it must be open
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void launch(Launch work) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void wait(const Gate& gate, uint32_t level) override;

  cudaStream_t native() const { return native_; }

 private:
  // Whether a copy may not run beside those gathered: copies of a batch have no order.
  bool depends(const std::byte* to, const std::byte* from, size_t bytes) const;
  void send_copies();
  bool send_batch();  // false: this driver has none

  const std::shared_ptr<CudaParts> parts_;
  const cudaStream_t native_;
  const uint32_t index_;
  std::vector<void*> to_;  // gathered: a copy an index of the three
  std::vector<const void*> from_;
  std::vector<size_t> bytes_;
  bool batches_ = true;  // no batch has been refused
};

}  // namespace spillway::kernels::cuda
