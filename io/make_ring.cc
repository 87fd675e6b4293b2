#include "io/make_ring.h"

#include <utility>

#include "io/thread_ring.h"
#include "io/uring_parker.h"
#include "io/uring_ring.h"
#include "runtime/eventfd_parker.h"

namespace spillway::io {

ChosenParker make_parker(IoUring use) {
  std::string why = "io_uring is switched off";
  if (use == IoUring::kWhereItWorks) {
    auto made = UringParker::create();
    if (made) {
      UringParker* uring = made->get();
      return {std::move(*made), "", uring};
    }
    why = made.error().message;
  }
  return {std::make_unique<EventfdParker>(), std::move(why), nullptr};
}

std::unique_ptr<Ring> make_ring(const ChosenParker& chosen, EngineLoop& loop) {
  if (chosen.uring != nullptr) {
    return std::make_unique<UringRing>(*chosen.uring, loop, UringRing::Options{});
  }
  ThreadRing::Options options;
  options.why = chosen.why_not_io_uring;
  return std::make_unique<ThreadRing>(loop, options);
}

}  // namespace spillway::io
