#include "io/entropy.h"

#include <sys/random.h>

#include "runtime/check.h"

namespace spillway::io {

uint64_t Entropy::next() {
  uint64_t number = 0;
  while (number == 0) {
    if (prng_) {
      number = prng_->next();
      continue;
    }
    // Up to 256 bytes come whole and cannot be interrupted (getrandom(2)).
    const bool drawn = getrandom(&number, sizeof number, 0) == sizeof number;
    CHECK(drawn);
  }
  return number;
}

}  // namespace spillway::io
