// The collective of GPUs: NCCL brings each rank's rows to the others, and each sums them itself in
// the order of ranks. NCCL's own sum would not do: which ranks it adds first depends on the
// algorithm (ring, tree, in the switch) and channels that it chooses by size and topology, so that
// the bits would too.
//
// All calls of NCCL for one meeting go in one group, since one thread drives every rank and a send
// alone waits for its receiver. The streams are the ranks' compute streams.
//
// Failure: an error of NCCL's, at a call or later (asked for while somebody waits in vain), or one
// of the devices: the communicators are aborted, so that nothing waits for a peer that is gone, and
// all of the devices end. What is called from then on does nothing.
//
// Sketch, of n ranks and `count` floats: each receives (n - 1) * count, then reads n * count and
// writes count. A decode row is two launches of some microseconds; 512 rows of 4,096 over two ranks
// are 8.4 MB each way, 20 us at NVLink's 450 GB/s, and 6 us of summing. From four ranks on, and
// many rows, a share each (as in_process_collective.h) would move less, for a second meeting.
#pragma once

#include <memory>
#include <vector>

#include "kernels/collective.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/nccl_api.h"
#include "runtime/result.h"

namespace spillway::kernels {

struct NcclCollectiveOptions {
  size_t sum_floats_max = 0;     // of all_reduce()
  size_t gather_floats_max = 0;  // of gather(): of all ranks' parts together
};

// The devices, different GPUs, outlive it, and all that it enqueued is done before it goes, or a
// device has ended. Takes max(ranks * sum_floats_max, gather_floats_max) floats of each device.
// Connects all ranks: what comes later waits for no memory and no connection, so a meeting may
// stand before a gate. kUnavailable: NCCL's message. REQUIRES: 2 to cuda::kRanksMax devices.
Result<std::unique_ptr<Collective>> make_nccl_collective(const cuda::NcclApi& api,
                                                         std::vector<CudaDevice*> devices,
                                                         const NcclCollectiveOptions& options);

}  // namespace spillway::kernels
