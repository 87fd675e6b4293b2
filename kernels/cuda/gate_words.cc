#include "kernels/cuda/gate_words.h"

#include <vector>

namespace spillway::kernels::cuda {

void GateWords::begin() {
  for (Word& word : passed_) word = words_.take();
}

Word GateWords::take() {
  std::erase_if(resting_, [this](const Resting& one) {
    if (!over(one.waits)) return false;
    words_.give_back(one.word);
    return true;
  });
  return words_.take();
}

void GateWords::give_back(Word word, const Waits& waits) {
  if (over(waits)) {
    words_.give_back(word);
  } else {
    resting_.push_back({word, waits});
  }
}

bool GateWords::over(const Waits& waits) const {
  for (uint32_t stream = 0; stream < kStreams; ++stream) {
    if (waits[stream] == 0) continue;
    const uint32_t passed = passed_[stream].host->load(std::memory_order_acquire);
    if (static_cast<int32_t>(passed - waits[stream]) < 0) return false;
  }
  return true;
}

}  // namespace spillway::kernels::cuda
