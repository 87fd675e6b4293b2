#include "io/make_parker.h"

#include <utility>

#include "io/ring_parker.h"
#include "runtime/eventfd_parker.h"

namespace spillway::io {

ChosenParker make_parker() {
  auto ring = RingParker::create();
  if (ring) return {std::move(*ring), ""};
  return {std::make_unique<EventfdParker>(), ring.error().message};
}

}  // namespace spillway::io
