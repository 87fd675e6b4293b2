// Chooses what the engine's loop sleeps in and what moves its bytes: io_uring for both, or ppoll
// and a few threads, with the same semantics.
#pragma once

#include <memory>
#include <string>

#include "io/ring.h"
#include "runtime/engine_loop.h"
#include "runtime/parker.h"

namespace spillway::io {

class UringParker;

struct ChosenParker {
  std::unique_ptr<Parker> parker;  // description() names it: "io_uring" or "ppoll"
  std::string why_not_io_uring;    // empty with io_uring; else a sentence for the start-up line
  UringParker* uring = nullptr;    // the same parker, where it is that
};

enum class IoUring : uint8_t { kWhereItWorks, kNever };

// Any thread, at start-up.
ChosenParker make_parker(IoUring use = IoUring::kWhereItWorks);

// The ring that goes with the parker. `loop` sleeps in that parker; both outlive the ring.
std::unique_ptr<Ring> make_ring(const ChosenParker& chosen, EngineLoop& loop);

}  // namespace spillway::io
