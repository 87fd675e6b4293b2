// One step of a divided model (division.h) on its ranks' devices: enqueues each rank's part of the
// pass and what the ranks do together, tile by tile. Every launch and meeting is enqueued at once
// by the engine thread, in an order in which nothing waits for what comes later, so no rank can
// wait for ever; stages work on different tiles at the same time.
//
// Sketch, of what a layer costs beside its arithmetic: 2 launches and 2 sums on each rank; on CPU
// devices a sum is about 15 stream operations of 1 us over two ranks, so 60 us a layer and step.
#pragma once

#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/event_pool.h"
#include "kernels/in_process_collective.h"
#include "model/division.h"
#include "model/forward.h"
#include "model/row_buffer.h"
#include "model/runner.h"

namespace spillway::model {

// A rank's device and its part of the model. All outlive the pass.
struct PassRank {
  kernels::Device* device = nullptr;
  Forward* forward = nullptr;
  uint32_t layers = 0;
  uint32_t vocabulary = 0;  // rows of the output matrix
};

struct PassShape {
  Division division;
  uint32_t embedding = 0;
  uint32_t vocabulary = 0;  // the whole model's
};

class DividedPass {
 public:
  // `ranks` as division.h numbers them; their Forwards have equal tile_rows() and logit_rows().
  DividedPass(const PassShape& shape, std::vector<PassRank> ranks);

  // The rank that draws: the first of the last stage. What is enqueued on its compute stream before
  // a step is done when any rank begins, what is enqueued after it runs when all have ended.
  uint32_t home() const { return home_; }

  // As Runner::enqueue(). `groups`: the whole model's, for their page sizes.
  void enqueue(const std::vector<kernels::KvGroupLayout>& groups, const StepBatch& batch,
               StepResult& result);

 private:
  struct Tile {
    uint32_t rows = 0;
    uint32_t active = 0;  // whose logits are wanted
  };

  std::vector<Tile> tiles_of(const std::vector<kernels::KvGroupLayout>& groups,
                             const StepBatch& batch) const;
  void run_stage(uint32_t stage, const Tile& tile);
  void hand_on(uint32_t from_stage, uint32_t rows);
  float* gather_logits(uint32_t rows);
  void draw(const Tile& tile, const StepBatch& batch, StepResult& result);
  void sum(uint32_t stage, float* (Forward::*buffer)(), uint32_t rows);
  PassRank& rank(uint32_t stage, uint32_t place) {
    return ranks_[stage * shape_.division.tensor + place];
  }
  // The same for every rank of the stage, each on its own.
  template <class Work>
  void launch(uint32_t stage, Work work);

  const PassShape shape_;
  std::vector<PassRank> ranks_;
  const uint32_t home_;
  std::vector<std::unique_ptr<kernels::InProcessCollective>> collectives_;  // (stage)
  std::vector<kernels::EventPool> events_;                                  // (rank)
  RowBuffer logits_;  // of home, where stages have several ranks: (logit_rows, whole vocabulary)
};

}  // namespace spillway::model
