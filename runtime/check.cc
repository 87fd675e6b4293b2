#include "runtime/check.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "runtime/result.h"

namespace spillway {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "spillway: CHECK failed: %s at %s:%d\n", condition, file, line);
  std::abort();
}

void throw_exception_from_error(const Error& error, const boost::source_location&) {
  throw std::runtime_error(error.message);
}

}  // namespace spillway
