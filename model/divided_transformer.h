// A transformer divided over several devices (division.h): implements Runner (runner.h). Each rank
// has its device, its part of the weights and its part of every page.
//
// A page is one run of bytes for all that keep it: the ranks' parts behind each other, in the order
// of ranks, each with the layout of a model of that rank's heads and layers and padded to 4 KiB. A
// page id names the same page on all ranks. The pages lie in memory that all devices reach: rank r
// finds its part of page p at base + p * page_bytes + what the ranks before it have.
//
// The engine's device is device(), which copies pages in the ranks' parts. Other bits than one
// device's: partial sums are added in the order of ranks. So the fingerprint names the division,
// and pages are not shared with another.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/device_set.h"
#include "model/divided_pass.h"
#include "model/division.h"
#include "model/transformer.h"

namespace spillway::model {

class DividedTransformer final : public Runner {
 public:
  // How a rank's device that has ended is replaced.
  struct Spare {
    // Ends the rank's device and makes another, its owner's as well. On an error there is none, and
    // it may be asked again.
    std::function<Result<kernels::Device*>(uint32_t rank)> replace_device;
    std::function<Result<GgufFile>()> open_file;  // the model's, for the rank's weights
  };

  // `devices` (rank) outlive the transformer; the options are each rank's, and `threads` the most
  // workers that any of them has. `file` is needed no longer afterwards. Errors name what cannot be
  // divided, or as Transformer::create().
  static Result<std::unique_ptr<DividedTransformer>> create(
      const GgufFile& file, std::span<kernels::Device* const> devices, const Division& division,
      const TransformerOptions& options);

  const RunnerShape& shape() const override { return shape_; }
  void bind_pages(std::vector<std::byte*> base) override;
  uint32_t batch_tokens_max() const override { return batch_tokens_max_; }
  uint32_t rows_together_max() const override { return tile_rows_; }
  // REQUIRES: all KV is there: no gates. Gives no stamps.
  void enqueue(const StepBatch& batch, StepResult& result) override;
  void collect(const StepBatch&, StepResult&) override {}  // home's team draws
  // Of the ranks whose devices have ended; the others keep what they have. Without a spare: an
  // error.
  Result<std::string> rebuild() override;
  void set_spare(Spare spare) { spare_ = std::move(spare); }

  // All ranks' devices as one (kernels/device_set.h).
  kernels::Device& device() { return *device_; }
  const ModelConfig& config() const { return config_; }
  const RankShare& share(uint32_t rank) const { return ranks_[rank]->share; }
  // Of a page of `group`, the bytes that are the rank's.
  std::span<std::byte> part_of_page(uint32_t rank, uint32_t group, std::span<std::byte> page) const;

 private:
  struct Rank {
    RankShare share;
    ModelConfig config;
    Weights weights;
    std::vector<kernels::KvGroupLayout> layouts;  // (group) of its parts
    std::vector<size_t> offsets;                  // (group) of its part in a page
    kernels::Device* device = nullptr;            // another's
    std::unique_ptr<Forward> forward;             // null: its device is lost
  };

  DividedTransformer(ModelConfig config, const Division& division,
                     const TransformerOptions& options);
  void lay_out_pages();
  void load_weights_of(Rank& rank, const ModelTensors& tensors) const;
  void choose_rows();
  void make_forward(Rank& rank) const;
  void make_pass();
  Result<void> replace_lost(const GgufFile& file);
  Result<std::string> fingerprint(const GgufFile& file);

  const ModelConfig config_;
  const Division division_;
  const TransformerOptions options_;
  uint32_t tile_rows_ = 0;         // as many for all as the narrowest scratch holds
  uint32_t batch_tokens_max_ = 0;  // what was asked for, or what the streams hold of so many ranks
  RunnerShape shape_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<DividedPass> pass_;  // null: a rank is to be replaced yet
  Spare spare_;
  std::unique_ptr<kernels::DeviceSet> device_;
};

}  // namespace spillway::model
