#include "model/unicode.h"

#include <algorithm>
#include <memory>

#include "model/unicode_table.h"

namespace spillway::model {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

std::unique_ptr<CodePointClass[]> expand_runs() {
  auto table = std::make_unique<CodePointClass[]>(kCodePoints);
  for (size_t i = 0; i < kUnicodeRunCount; ++i) {
    const uint32_t begin = kUnicodeRuns[i] >> 4;
    const uint32_t end = i + 1 < kUnicodeRunCount ? kUnicodeRuns[i + 1] >> 4 : kCodePoints;
    std::fill(table.get() + begin, table.get() + end,
              static_cast<CodePointClass>(kUnicodeRuns[i] & 0xF));
  }
  return table;
}

}  // namespace

CodePointClass code_point_class(uint32_t code_point) {
  static const std::unique_ptr<CodePointClass[]> table = expand_runs();
  return code_point < kCodePoints ? table[code_point] : CodePointClass::kOther;
}

}  // namespace spillway::model
