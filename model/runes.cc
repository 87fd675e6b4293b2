#include "model/runes.h"

#include "model/utf8.h"

namespace spillway::model {

void read_runes(std::string_view text, std::vector<Rune>& out) {
  out.clear();
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = read_utf8(text, at);
    const uint8_t bytes = step.kind == Utf8Kind::kValid ? step.bytes : 1;
    out.emplace_back(step.code_point, code_point_class(step.code_point), bytes);
    at += bytes;
  }
}

}  // namespace spillway::model
