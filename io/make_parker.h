// Chooses what the engine's loop sleeps in.
#pragma once

#include <memory>
#include <string>

#include "runtime/parker.h"

namespace spillway::io {

struct ChosenParker {
  std::unique_ptr<Parker> parker;  // description() names it: "io_uring" or "ppoll"
  std::string why_not_io_uring;    // empty with io_uring; else a sentence for the start-up line
};

// io_uring where it works, else ppoll, with the same semantics. Any thread, at start-up.
ChosenParker make_parker();

}  // namespace spillway::io
