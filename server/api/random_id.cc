#include "server/api/random_id.h"

#include <sys/random.h>

#include "runtime/check.h"

namespace spillway::server {

uint64_t random_u64() {
  uint64_t value = 0;
  CHECK(getrandom(&value, sizeof value, 0) == sizeof value);  // never short below 256 bytes
  return value;
}

std::string random_id(std::string_view prefix) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string id(prefix);
  for (int half = 0; half < 2; ++half) {
    uint64_t bits = random_u64();
    for (int digit = 0; digit < 16; ++digit, bits >>= 4) id += kHex[bits & 15];
  }
  return id;
}

}  // namespace spillway::server
