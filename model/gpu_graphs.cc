#include "model/gpu_graphs.h"

#include <bit>
#include <string>
#include <utility>

#include "runtime/log.h"

namespace spillway::model {

GpuGraphs::GpuGraphs(CUstream_st* stream, kernels::cuda::GraphMaker* maker, uint32_t rows_max)
    : stream_(stream), maker_(maker), rows_max_(std::bit_floor(rows_max)) {}

void GpuGraphs::run_layers(size_t slot, const GpuTile& tile, GpuForward& forward,
                           GpuOperators& run) {
  if (tile.graph.rows == 0 || maker_ == nullptr) return forward.run_layers(run, tile);
  const auto [found, is_first] = sizes_.try_emplace({slot, tile.graph});
  if (is_first) return forward.run_layers(run, tile);
  Captured& captured = found->second;
  Result<> done;
  if (captured.graph == nullptr) done = capture(captured, tile, forward);
  if (done) done = captured.graph->launch();
  if (done) {
    forward.set_rows(captured.rows);
    return;
  }
  give_up(done.error());
  forward.run_layers(run, tile);
}

Result<> GpuGraphs::capture(Captured& to, const GpuTile& tile, GpuForward& forward) {
  auto made = maker_->capture([&]() -> Result<> {
    GpuOperators run(stream_, {});  // nobody need be told: launched plain it may well be taken
    forward.run_layers(run, tile);
    if (run.failed() == nullptr) return {};
    return Error{ErrorCode::kIo,
                 std::string(run.failed()) + ": CUDA error " + std::to_string(run.error())};
  });
  if (!made) return made.error();
  to.graph = *std::move(made);
  to.rows = forward.rows();
  return {};
}

void GpuGraphs::give_up(const Error& why) {
  maker_ = nullptr;
  sizes_.clear();
  spdlog::warn("cuda_graphs off=\"{}\": decode steps are launched kernel by kernel", why.message);
}

}  // namespace spillway::model
