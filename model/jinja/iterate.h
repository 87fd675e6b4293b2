// Walking over values as Python's for does, and the lazy sources behind it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

// iter(value): code points of a string, keys of a dict, ... Throws for what is not iterable.
std::shared_ptr<Iterator> iterate(Run& run, const Value& value);

bool iterable(const Value& value);

// len(value), or nothing for what has no length.
std::optional<int64_t> length_of(Run& run, const Value& value);

// list(value). Counts a step per item.
std::vector<Value> to_items(Run& run, const Value& value);

// A generator that a function feeds: it returns nothing at the end. `depth` is that of what the
// function holds.
Value generate(Run& run, uint32_t depth, std::function<std::optional<Value>(Run&)> source);

// reversed(value), or nothing where Python refuses it (generators).
std::optional<Value> reversed(Run& run, const Value& value);

}  // namespace spillway::model::jinja
