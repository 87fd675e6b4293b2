#include "model/divided_pass.h"

#include <algorithm>
#include <utility>

#include "model/step_tile.h"
#include "runtime/check.h"

namespace spillway::model {

using kernels::Team;

DividedPass::DividedPass(const PassShape& shape, std::vector<PassRank> ranks)
    : shape_(shape),
      ranks_(std::move(ranks)),
      home_(shape.division.tensor * (shape.division.pipeline - 1)),
      logits_(shape.division.tensor == 1 ? 0 : ranks_.front().forward->logit_rows(),
              shape.vocabulary) {
  CHECK(ranks_.size() == shape_.division.ranks());
  for (const PassRank& each : ranks_) {
    CHECK(each.forward->tile_rows() == ranks_.front().forward->tile_rows());
    CHECK(each.forward->logit_rows() == ranks_.front().forward->logit_rows());
    events_.emplace_back(*each.device);
  }
  for (uint32_t stage = 0; stage < shape_.division.pipeline; ++stage) {
    std::vector<kernels::Device*> devices;
    for (uint32_t place = 0; place < shape_.division.tensor; ++place) {
      devices.push_back(rank(stage, place).device);
    }
    collectives_.push_back(std::make_unique<kernels::InProcessCollective>(std::move(devices)));
  }
}

// How many rows each tile has is known before any of them runs: Forward cuts the step the same way.
std::vector<DividedPass::Tile> DividedPass::tiles_of(
    const std::vector<kernels::KvGroupLayout>& groups, const StepBatch& batch) const {
  std::vector<GroupPages> pages;
  for (const kernels::KvGroupLayout& layout : groups) pages.push_back({&layout, nullptr});
  StepTiler tiler(pages, batch, ranks_.front().forward->tile_rows());
  std::vector<Tile> tiles;
  StepTile tile;
  while (tiler.next(tile)) {
    tiles.push_back({tile.rows(), static_cast<uint32_t>(tile.active_rows.size())});
  }
  return tiles;
}

template <class Work>
void DividedPass::launch(uint32_t stage, Work work) {
  for (uint32_t place = 0; place < shape_.division.tensor; ++place) {
    const PassRank& at = rank(stage, place);
    at.device->compute().launch([forward = at.forward, work](Team& team) { work(*forward, team); });
  }
}

void DividedPass::sum(uint32_t stage, float* (Forward::*buffer)(), uint32_t rows) {
  std::vector<float*> buffers;
  for (uint32_t place = 0; place < shape_.division.tensor; ++place) {
    buffers.push_back((rank(stage, place).forward->*buffer)());
  }
  collectives_[stage]->all_reduce(buffers, size_t{rows} * shape_.embedding);
}

void DividedPass::enqueue(const std::vector<kernels::KvGroupLayout>& groups, const StepBatch& batch,
                          StepResult& result) {
  const kernels::Event& before = events_[home_].record();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (r != home_) ranks_[r].device->compute().wait(before);
  }
  const std::vector<Tile> tiles = tiles_of(groups, batch);
  for (size_t t = 0; t < tiles.size(); ++t) {
    for (uint32_t stage = 0; stage < shape_.division.pipeline; ++stage) {
      launch(stage, [&batch, &result, first = t == 0](Forward& forward, Team& team) {
        first ? forward.begin(team, batch, result) : forward.next_tile(team, batch, result);
      });
      if (stage == 0) {
        sum(stage, &Forward::residual, tiles[t].rows);
      } else {
        hand_on(stage - 1, tiles[t].rows);
      }
      run_stage(stage, tiles[t]);
    }
    draw(tiles[t], batch, result);
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (r != home_) ranks_[home_].device->compute().wait(events_[r].record());
  }
}

void DividedPass::run_stage(uint32_t stage, const Tile& tile) {
  const bool is_last_stage = stage + 1 == shape_.division.pipeline;
  const uint32_t layers = rank(stage, 0).layers;
  for (uint32_t i = 0; i < layers; ++i) {
    launch(stage, [i](Forward& forward, Team& team) { forward.attention_half(team, i); });
    const uint32_t rows = is_last_stage && i + 1 == layers ? tile.active : tile.rows;
    if (rows == 0) return;
    sum(stage, &Forward::update, rows);
    launch(stage, [i](Forward& forward, Team& team) { forward.mlp_half(team, i); });
    sum(stage, &Forward::update, rows);
  }
  launch(stage, [](Forward& forward, Team& team) { forward.end_layers(team); });
}

// The residual goes from each rank of a stage to the one in its place in the next, which takes it
// when it gets there; until then the rank before keeps its own for no later tile.
void DividedPass::hand_on(uint32_t from_stage, uint32_t rows) {
  const size_t bytes = size_t{rows} * shape_.embedding * sizeof(float);
  for (uint32_t place = 0; place < shape_.division.tensor; ++place) {
    const PassRank& from = rank(from_stage, place);
    const PassRank& to = rank(from_stage + 1, place);
    kernels::Stream& stream = to.device->compute();
    stream.wait(events_[from_stage * shape_.division.tensor + place].record());
    stream.copy(to.forward->residual(), from.forward->residual(), bytes);
    from.device->compute().wait(
        events_[(from_stage + 1) * shape_.division.tensor + place].record());
  }
}

// Where home finds the logits of the whole vocabulary.
float* DividedPass::gather_logits(uint32_t rows) {
  if (shape_.division.tensor == 1) return ranks_[home_].forward->logits();
  const uint32_t stage = shape_.division.pipeline - 1;
  std::vector<kernels::RowPart> parts;
  for (uint32_t place = 0; place < shape_.division.tensor; ++place) {
    const PassRank& at = rank(stage, place);
    parts.push_back({.rows = at.forward->logits(), .width = at.vocabulary});
  }
  collectives_[stage]->gather(parts, rows, logits_.data());
  return logits_.data();
}

void DividedPass::draw(const Tile& tile, const StepBatch& batch, StepResult& result) {
  const uint32_t stage = shape_.division.pipeline - 1;
  const PassRank& drawer = ranks_[home_];
  const uint32_t rows_max = drawer.forward->logit_rows();
  for (uint32_t first = 0; first < tile.active; first += rows_max) {
    const uint32_t rows = std::min(rows_max, tile.active - first);
    launch(stage, [first, rows](Forward& forward, Team& team) {
      forward.compute_logits(team, first, rows);
    });
    float* const logits = gather_logits(rows);
    drawer.device->compute().launch(
        [forward = drawer.forward, &batch, &result, first, rows, logits](Team& team) {
          forward->draw(team, batch, result, first, rows, logits);
        });
  }
}

}  // namespace spillway::model
