// In the model test a failed CHECK is a failed command, which RapidCheck can shrink: this takes the
// place of the runtime's check_failed(), which aborts.
#include <stdexcept>
#include <string>

#include "runtime/check.h"

namespace spillway {

void check_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(std::string("CHECK(") + condition + ") at " + file + ":" +
                         std::to_string(line));
}

}  // namespace spillway
