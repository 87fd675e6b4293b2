// Filters that take sequences apart and put them together.
#include <algorithm>

#include "model/jinja/attributes.h"
#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {
namespace {

Value length(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "length", arguments, {});
  const auto size = length_of(run, input);
  if (!size) fail("object of type '" + type_name(input) + "' has no len()");
  return Value::integer(*size);
}

Value list(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "list", arguments, {});
  return run.list(to_items(run, input));
}

Value first(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "first", arguments, {});
  std::optional<Value> item = iterate(run, input)->next(run);
  return item ? std::move(*item) : run.undefined("No first item, sequence was empty.");
}

Value last(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "last", arguments, {});
  if (input.is_sequence() && !input.items().empty()) return input.items().back();
  std::optional<Value> item;
  if (!input.is_undefined()) {
    const auto backwards = reversed(run, input);
    if (!backwards) fail("'" + type_name(input) + "' object is not reversible");
    item = backwards->as_iterator().next(run);
  }
  return item ? std::move(*item) : run.undefined("No last item, sequence was empty.");
}

Value reverse(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "reverse", arguments, {});
  if (input.is_string()) {
    return slice(run, input, Value::none(), Value::none(), Value::integer(-1));
  }
  if (auto backwards = reversed(run, input)) return std::move(*backwards);
  if (!iterable(input)) fail("argument must be iterable");
  std::vector<Value> items = to_items(run, input);
  std::reverse(items.begin(), items.end());
  return run.list(std::move(items));
}

Value items(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "items", arguments, {});
  size_t index = 0;
  return generate(run, input.depth() + 1, [=](Run& run) mutable -> std::optional<Value> {
    if (input.is_undefined()) return std::nullopt;
    if (!input.is(Kind::kDict)) fail("Can only get item pairs from a mapping.");
    const std::vector<Entry>& entries = input.as_dict().entries;
    if (index >= entries.size()) return std::nullopt;
    const Entry& entry = entries[index++];
    return run.tuple({entry.first, entry.second});
  });
}

Value batch(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "batch", arguments, {"linecount", "fill_with"}, 1);
  const Value size = p.at(0);
  const Value fill = p.value(1, Value::none());
  auto source = std::make_shared<std::shared_ptr<Iterator>>();
  auto pending = std::make_shared<std::optional<Value>>();
  return generate(run, input.depth() + 1, [=](Run& run) -> std::optional<Value> {
    const bool started = *source != nullptr;
    if (!started) *source = iterate(run, input);
    std::vector<Value> row;
    if (pending->has_value()) row.push_back(std::move(**pending));
    pending->reset();
    while (std::optional<Value> item = (*source)->next(run)) {
      run.charge(sizeof(Value));
      const Value count = Value::integer(static_cast<int64_t>(row.size()));
      if (equal(run, count, size)) {
        *pending = std::move(item);
        return run.list(std::move(row));
      }
      row.push_back(std::move(*item));
    }
    if (row.empty()) return std::nullopt;
    if (!fill.is_none()) {
      if (!size.is_small_int()) fail("batch: linecount must be an integer");
      const auto missing = size.as_int() - static_cast<int64_t>(row.size());
      if (missing > 0) {
        run.charge(static_cast<size_t>(missing) * sizeof(Value));
        row.insert(row.end(), static_cast<size_t>(missing), fill);
      }
    }
    return run.list(std::move(row));
  });
}

Value slices(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t count = p.integer(0, 1);
  const Value fill = p.value(1, Value::none());
  auto items = std::make_shared<std::optional<std::vector<Value>>>();
  int64_t number = 0;
  int64_t offset = 0;
  return generate(run, input.depth() + 1, [=](Run& run) mutable -> std::optional<Value> {
    if (!items->has_value()) *items = to_items(run, input);
    const auto size = static_cast<int64_t>((*items)->size());
    if (count == 0) fail("integer division or modulo by zero");
    if (number >= count) return std::nullopt;
    const int64_t each = size / count;
    const int64_t with_extra = size % count;
    const int64_t begin = offset + number * each;
    if (number < with_extra) ++offset;
    const int64_t end = offset + (number + 1) * each;
    std::vector<Value> row((*items)->begin() + begin, (*items)->begin() + end);
    if (!fill.is_none() && number >= with_extra) row.push_back(fill);
    ++number;
    return run.list(std::move(row));
  });
}

Value attr(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "attr", arguments, {"name"}, 1);
  const std::string name = p.text(0, "");
  if (input.is_undefined()) fail_undefined(input);
  if (auto found = python_attribute(run, input, name)) return std::move(*found);
  return run.undefined(quoted(type_name(input) + " object") + " has no attribute " + quoted(name));
}

Value random(Run&, const Value&, const Arguments&) {
  fail("the filter 'random' is not supported in chat templates: a prompt must be repeatable");
}

constexpr Filter kFilters[] = {
    {"attr", attr},     {"batch", batch},     {"count", length},  {"first", first},
    {"items", items},   {"last", last},       {"length", length}, {"list", list},
    {"random", random}, {"reverse", reverse}, {"slice", slices},
};

}  // namespace

std::span<const Filter> sequence_filters() { return kFilters; }

}  // namespace spillway::model::jinja
