// value[start:stop:step], with Python's clamping.
#include <algorithm>

#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

struct Bounds {
  int64_t start, step, count;
};

int64_t bound_of(const Value& value) {
  if (value.is_small_int()) return value.as_int();
  if (value.is(Kind::kBigInt)) return value.digits()[0] == '-' ? INT64_MIN : INT64_MAX;
  fail("slice indices must be integers or None or have an __index__ method");
}

Bounds clamp(const Value& start, const Value& stop, const Value& step, int64_t size) {
  const int64_t by = step.is_none() ? 1 : std::max(bound_of(step), -INT64_MAX);
  if (by == 0) fail("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? size : size - 1;
  const auto place = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    const int64_t index = bound_of(value);
    return std::clamp(index < 0 ? std::max(index, -size - 1) + size : index, low, high);
  };
  const int64_t from = place(start, by > 0 ? low : high);
  const int64_t to = place(stop, by > 0 ? high : low);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = (from - to - 1) / -by + 1;
  return {from, by, count};
}

Value slice_text(Run& run, const Value& value, const Bounds& bounds) {
  const String& string = value.as_string();
  const std::string& text = string.bytes;
  if (bounds.step == 1) {
    const auto at = [&](int64_t character) {
      return string.is_ascii() ? static_cast<size_t>(character) : byte_offset(text, character);
    };
    const size_t begin = at(bounds.start);
    const size_t end = at(bounds.start + bounds.count);
    run.step(static_cast<int64_t>(string.is_ascii() ? 0 : end / 64));
    return run.string_like(value, bounds.count == 0 ? "" : text.substr(begin, end - begin));
  }
  run.charge(text.size() * sizeof(size_t));
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); next_point(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  std::string out;
  for (int64_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<size_t>(bounds.start + i * bounds.step);
    out.append(text, starts[at], starts[at + 1] - starts[at]);
  }
  return run.string_like(value, std::move(out));
}

}  // namespace

Value slice(Run& run, const Value& value, const Value& start, const Value& stop,
            const Value& step) {
  if (value.is_string()) {
    return slice_text(run, value, clamp(start, stop, step, value.as_string().characters));
  }
  if (value.is_sequence()) {
    const std::vector<Value>& items = value.items();
    const Bounds bounds = clamp(start, stop, step, static_cast<int64_t>(items.size()));
    run.step(bounds.count);
    std::vector<Value> out;
    out.reserve(static_cast<size_t>(bounds.count));
    for (int64_t i = 0; i < bounds.count; ++i) {
      out.push_back(items[static_cast<size_t>(bounds.start + i * bounds.step)]);
    }
    return value.is(Kind::kList) ? run.list(std::move(out)) : run.tuple(std::move(out));
  }
  if (value.is(Kind::kRange)) {
    const Range& range = value.as_range();
    const Bounds bounds = clamp(start, stop, step, range.size());
    const int64_t by = range.step * bounds.step;
    const int64_t from = range.start + bounds.start * range.step;
    return Value::range(from, from + bounds.count * by, by);
  }
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::kDict)) fail("unhashable type: 'slice'");
  fail("'" + type_name(value) + "' object is not subscriptable");
}

}  // namespace spillway::model::jinja
