// What the streams, events and gates of one CUDA device share. Lives as long as the last of them.
#pragma once

#include <memory>

#include "kernels/cuda/completions.h"
#include "kernels/cuda/gate_words.h"
#include "kernels/cuda/health.h"
#include "kernels/cuda/pinned_words.h"
#include "kernels/cuda/stream_values.h"

namespace spillway::kernels::cuda {

struct CudaParts {
  explicit CudaParts(int device) : health(std::make_shared<Health>(device)) {
    health->on_end([this] { words.set_all(kGateOpen); });
  }
  CudaParts(const CudaParts&) = delete;
  CudaParts& operator=(const CudaParts&) = delete;

  const std::shared_ptr<Health> health;
  PinnedWords words;
  GateWords gates{words};
  StreamValues values;
  Completions completions;
};

}  // namespace spillway::kernels::cuda
