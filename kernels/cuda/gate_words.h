// The words of gates, and when one may become another gate's: a gate may die while a stream has yet
// to come to where it waits for it. So each stream counts the waits that it has passed, in a word
// of its own, and a dead gate's word rests until that says that all of its waits are over.
//
// Thread: the engine's.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cuda/pinned_words.h"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kStreams = 3;
inline constexpr uint32_t kGateOpen = 1u << 30;  // above every level that is waited for

class GateWords {
 public:
  // The last of each stream's waits for one gate, by that stream's count; 0: it has none.
  using Waits = std::array<uint32_t, kStreams>;

  explicit GateWords(PinnedWords& words) : words_(words) {}

  void begin();  // once, when there are words
  Word take();
  void give_back(Word word, const Waits& waits);

  // Of one stream: the next wait's count, and where the stream writes it once it has passed.
  uint32_t next_wait(uint32_t stream) { return ++waits_[stream]; }
  Word passed(uint32_t stream) const { return passed_[stream]; }
  size_t resting() const { return resting_.size(); }

 private:
  struct Resting {
    Word word;
    Waits waits;
  };
  bool over(const Waits& waits) const;

  PinnedWords& words_;
  std::array<Word, kStreams> passed_{};
  Waits waits_{};
  std::vector<Resting> resting_;
};

}  // namespace spillway::kernels::cuda
