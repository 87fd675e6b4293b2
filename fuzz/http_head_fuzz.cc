// Any bytes as an HTTP connection (cases H1, H2): the first byte says in which pieces they arrive.
// How they are cut must not change what is understood.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/check.h"
#include "server/http_parser.h"

namespace {

using spillway::server::HttpParser;

// What a request was understood as; "" while it is incomplete.
std::string read_in_steps(std::string_view wire, size_t step) {
  HttpParser parser({.head_bytes = 4096, .body_bytes = 4096});
  std::string buffer;
  for (size_t at = 0; at < wire.size(); at += step) {
    buffer += wire.substr(at, step);
    while (parser.state() == HttpParser::State::kHead ||
           parser.state() == HttpParser::State::kBody) {
      const auto before = parser.state();
      const size_t used = buffer.empty() ? 0 : parser.put(buffer);
      CHECK(used <= buffer.size());
      buffer.erase(0, used);
      if (used == 0 && parser.state() == before) break;
    }
    if (parser.state() == HttpParser::State::kDone) {
      return parser.head().method + " " + parser.head().target + "\n" + parser.take_body();
    }
    if (parser.state() == HttpParser::State::kFailed) return "refused";
  }
  return "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = read_in_steps(wire, wire.size() + 1);
  const std::string pieces = read_in_steps(wire, 1u + data[0] % 16);
  // A refusal may come before or after a limit is seen; an accepted request must be the same.
  if (whole != "refused" && pieces != "refused") CHECK(whole == pieces);
  return 0;
}
