#include "kernels/cuda/nccl_collective.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/cuda/health.h"
#include "kernels/cuda/rank_operators.h"
#include "runtime/check.h"

namespace spillway::kernels {
namespace {

using cuda::kRanksMax;
using cuda::NcclApi;
using cuda::NcclResult;
using cuda::NcclType;

// The communicators of all ranks: whole, or gone together with the devices.
class Ranks final : public cuda::Companion {
 public:
  Ranks(const NcclApi& api, const std::vector<CudaDevice*>& devices)
      : api_(api), devices_(devices) {}
  ~Ranks() override;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Result<> connect();
  bool over() const { return over_; }
  const NcclApi& api() const { return api_; }
  ncclComm* comm(size_t rank) const { return comms_[rank]; }

  // What a call, or several as one, returned.
  void take(NcclResult result, const char* call);
  void on_device_end() override { end("another GPU of its group has failed"); }
  void on_doubt() override;

 private:
  void end(const std::string& why);
  std::string text(NcclResult result, const char* call) const {
    return std::string(call) + ": " + api_.error_string(result);
  }

  const NcclApi api_;
  const std::vector<CudaDevice*> devices_;
  std::vector<ncclComm*> comms_;
  bool over_ = false;
};

Ranks::~Ranks() {
  if (over_) return;
  for (ncclComm* const comm : comms_) api_.comm_destroy(comm);
}

Result<> Ranks::connect() {
  std::vector<int> indices;
  for (const CudaDevice* const device : devices_) indices.push_back(device->index());
  std::vector<ncclComm*> comms(devices_.size());
  const NcclResult made =
      api_.comm_init_all(comms.data(), static_cast<int>(comms.size()), indices.data());
  if (made != NcclResult::kSuccess) {
    return Error{ErrorCode::kUnavailable,
                 text(made, "ncclCommInitAll") + "; NCCL_DEBUG=INFO makes NCCL say more"};
  }
  comms_ = std::move(comms);
  return Result<>();
}

void Ranks::take(NcclResult result, const char* call) {
  if (result != NcclResult::kSuccess) end(text(result, call));
}

void Ranks::on_doubt() {
  for (ncclComm* const comm : comms_) {
    if (over_) return;
    NcclResult error = NcclResult::kSuccess;
    take(api_.comm_async_error(comm, &error), "ncclCommGetAsyncError");
    take(error, "NCCL, in the background");
  }
}

// All devices are let go before one is waited for: each may wait for any other, and NCCL for all of
// them where it frees memory.
void Ranks::end(const std::string& why) {
  if (std::exchange(over_, true)) return;
  std::vector<CudaDevice*> ended;
  for (CudaDevice* const device : devices_) {
    if (device->failure() != nullptr) continue;  // whoever ended it waits for it
    device->health().mark_ended(why);
    ended.push_back(device);
  }
  api_.group_start();
  for (ncclComm* const comm : comms_) api_.comm_abort(comm);
  api_.group_end();
  for (CudaDevice* const device : ended) device->health().wait_until_idle();
}

class NcclCollective final : public Collective {
 public:
  NcclCollective(const NcclApi& api, std::vector<CudaDevice*> devices,
                 const NcclCollectiveOptions& options)
      : devices_(std::move(devices)),
        options_(options),
        streams_(devices_.size()),
        ranks_(std::make_shared<Ranks>(api, devices_)) {}

  Result<> prepare();

  uint32_t ranks() const override { return static_cast<uint32_t>(devices_.size()); }
  void all_reduce(std::span<float* const> buffers, size_t count) override;
  void gather(std::span<const RowPart> parts, size_t rows, float* to) override;

 private:
  // Asks the streams, behind all that they were given so far. False: a device has ended.
  bool find_streams();
  template <class Calls>
  void in_a_group(const Calls& calls);
  // Brings each rank's floats to all others', where rank r's lie at staging(reader) + r * count.
  void exchange(std::span<float* const> buffers, size_t count);
  float* staging(size_t rank) const { return reinterpret_cast<float*>(memory_[rank].data); }
  void sum(size_t rank, const cuda::SumPartsArgs& args);

  const std::vector<CudaDevice*> devices_;  // (rank)
  const NcclCollectiveOptions options_;
  std::vector<DeviceMemory> memory_;   // (rank): what others sent
  std::vector<CUstream_st*> streams_;  // (rank): the compute streams
  const std::shared_ptr<Ranks> ranks_;
};

Result<> NcclCollective::prepare() {
  const size_t floats =
      std::max(options_.sum_floats_max * devices_.size(), options_.gather_floats_max);
  for (CudaDevice* const device : devices_) {
    auto memory = device->allocate(floats * sizeof(float));
    if (!memory) return memory.error();
    memory_.push_back(std::move(*memory));
  }
  if (const auto connected = ranks_->connect(); !connected) return connected.error();
  for (CudaDevice* const device : devices_) device->health().accompany(ranks_);
  // NCCL connects two ranks when they first send each other something.
  std::vector<float*> own;
  for (size_t r = 0; r < devices_.size(); ++r) {
    own.push_back(staging(r) + r * options_.sum_floats_max);
  }
  if (find_streams()) exchange(own, options_.sum_floats_max);
  for (const CudaDevice* const device : devices_) {
    if (device->failure() != nullptr) return *device->failure();
  }
  return Result<>();
}

bool NcclCollective::find_streams() {
  for (size_t r = 0; r < devices_.size(); ++r) {
    Stream& compute = devices_[r]->compute();
    compute.launch([this, r, &compute](Team&) { streams_[r] = devices_[r]->native(compute); });
  }
  return !ranks_->over();
}

// The calls of one meeting: after the first error the rest is left out, and the group is closed.
template <class Calls>
void NcclCollective::in_a_group(const Calls& calls) {
  const NcclApi& api = ranks_->api();
  NcclResult result = api.group_start();
  if (result != NcclResult::kSuccess) return ranks_->take(result, "ncclGroupStart");
  calls([&result](NcclResult one) {
    if (result == NcclResult::kSuccess) result = one;
    return result == NcclResult::kSuccess;
  });
  const NcclResult ended = api.group_end();
  ranks_->take(result == NcclResult::kSuccess ? ended : result, "an NCCL group");
}

void NcclCollective::exchange(std::span<float* const> buffers, size_t count) {
  const NcclApi& api = ranks_->api();
  in_a_group([&](const auto& went_well) {
    for (size_t r = 0; r < devices_.size(); ++r) {
      for (size_t peer = 0; peer < devices_.size(); ++peer) {
        if (peer == r) continue;
        const auto number = static_cast<int>(peer);
        const bool sent = went_well(
            api.send(buffers[r], count, NcclType::kFloat32, number, ranks_->comm(r), streams_[r]));
        if (!sent || !went_well(api.recv(staging(r) + peer * count, count, NcclType::kFloat32,
                                         number, ranks_->comm(r), streams_[r]))) {
          return;
        }
      }
    }
  });
}

void NcclCollective::sum(size_t rank, const cuda::SumPartsArgs& args) {
  Stream& compute = devices_[rank]->compute();
  compute.launch([&](Team&) {
    devices_[rank]->take_error_of("sum_parts",
                                  cuda::sum_parts(devices_[rank]->native(compute), args));
  });
}

void NcclCollective::all_reduce(std::span<float* const> buffers, size_t count) {
  CHECK(buffers.size() == devices_.size());
  CHECK(count <= options_.sum_floats_max);
  if (count == 0 || !find_streams()) return;
  exchange(buffers, count);
  for (size_t r = 0; r < devices_.size(); ++r) {
    cuda::SumPartsArgs args{
        .y = buffers[r], .count = ranks(), .rows = 1, .n = static_cast<uint32_t>(count)};
    for (size_t from = 0; from < devices_.size(); ++from) {
      args.parts[from] = from == r ? buffers[r] : staging(r) + from * count;
    }
    sum(r, args);
  }
}

void NcclCollective::gather(std::span<const RowPart> parts, size_t rows, float* to) {
  CHECK(parts.size() == devices_.size());
  size_t width = 0;
  for (const RowPart& part : parts) width += part.width;
  CHECK(rows * width <= options_.gather_floats_max);
  if (rows == 0 || !find_streams()) return;
  std::vector<const float*> at(parts.size());  // where rank 0 finds them
  at[0] = parts[0].rows;
  size_t used = 0;
  in_a_group([&](const auto& went_well) {
    const NcclApi& api = ranks_->api();
    for (size_t r = 1; r < parts.size(); ++r) {
      const size_t count = rows * parts[r].width;
      float* const there = staging(0) + std::exchange(used, used + count);
      at[r] = there;
      const bool sent = went_well(
          api.send(parts[r].rows, count, NcclType::kFloat32, 0, ranks_->comm(r), streams_[r]));
      if (!sent || !went_well(api.recv(there, count, NcclType::kFloat32, static_cast<int>(r),
                                       ranks_->comm(0), streams_[0]))) {
        return;
      }
    }
  });
  if (ranks_->over()) return;
  for (size_t r = 0; r < parts.size(); to += parts[r++].width) {
    cuda::SumPartsArgs args{.y = to,
                            .stride = parts[r].width,
                            .y_stride = width,
                            .count = 1,
                            .rows = static_cast<uint32_t>(rows),
                            .n = static_cast<uint32_t>(parts[r].width)};
    args.parts[0] = at[r];
    sum(0, args);
  }
}

}  // namespace

Result<std::unique_ptr<Collective>> make_nccl_collective(const NcclApi& api,
                                                         std::vector<CudaDevice*> devices,
                                                         const NcclCollectiveOptions& options) {
  CHECK(devices.size() >= 2);
  CHECK(devices.size() <= kRanksMax);
  CHECK(options.sum_floats_max > 0);
  CHECK(options.sum_floats_max <= UINT32_MAX);
  auto made = std::make_unique<NcclCollective>(api, std::move(devices), options);
  if (const auto ready = made->prepare(); !ready) return ready.error();
  return std::unique_ptr<Collective>(std::move(made));
}

}  // namespace spillway::kernels
