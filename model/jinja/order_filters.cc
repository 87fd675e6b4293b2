// Filters that compare items: sort, group, minimum, maximum, unique.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/stable_sort.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {
namespace {

// Items in the stable order of their keys.
std::vector<Value> sorted(Run& run, std::vector<Value> items, const std::vector<Value>& keys,
                          bool descending) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  stable_sort(order, [&](size_t a, size_t b) {
    return descending ? less(run, keys[b], keys[a]) : less(run, keys[a], keys[b]);
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t index : order) out.push_back(std::move(items[index]));
  return out;
}

Value sort(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool keep_case = p.flag(1, false);
  std::vector<AttributePath> paths;
  const Value attribute = p.value(2, Value::none());
  if (attribute.is_string()) {
    std::string_view rest = attribute.text();
    while (true) {
      const size_t comma = rest.find(',');
      paths.emplace_back(run, run.string(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(run, attribute);
  }
  std::vector<Value> items = to_items(run, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      const Value part = path.get(run, item);
      parts.push_back(keep_case ? part : ignore_case(run, part));
    }
    keys.push_back(run.list(std::move(parts)));
  }
  return run.list(sorted(run, std::move(items), keys, p.flag(0, false)));
}

Value dictsort(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const bool keep_case = p.flag(0, false);
  const std::string by = p.text(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is(Kind::kDict)) fail("dictsort: expected a dict, got " + type_name(input));
  std::vector<Value> items = to_items(run, Value::view({input, View::Part::kItems}));
  std::vector<Value> keys;
  for (const Value& item : items) {
    const Value& part = item.items()[by == "key" ? 0 : 1];
    keys.push_back(keep_case ? part : ignore_case(run, part));
  }
  return run.list(sorted(run, std::move(items), keys, p.flag(2, false)));
}

Value groupby(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(run, p.at(0));
  const Value fallback = p.value(1, Value::none());
  const bool keep_case = p.flag(2, false);
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(run, item, fallback);
    return keep_case ? key : ignore_case(run, key);
  };
  std::vector<Value> items = to_items(run, input);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  items = sorted(run, std::move(items), keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    const Value key = key_of(items[begin]);
    size_t end = begin + 1;
    while (end < items.size() && equal(run, key_of(items[end]), key)) ++end;
    std::vector<Value> members(items.begin() + static_cast<std::ptrdiff_t>(begin),
                               items.begin() + static_cast<std::ptrdiff_t>(end));
    const Value grouper = keep_case ? key : path.get(run, members[0], fallback);
    const Value list = run.list(std::move(members));
    run.tuple({grouper, list});  // checks the depth before group() would
    groups.push_back(Value::group(grouper, list));
    begin = end;
  }
  return run.list(std::move(groups));
}

template <bool kMax>
Value extreme(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(run, p.value(1, Value::none()));
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(run, item);
    return p.flag(0, false) ? key : ignore_case(run, key);
  };
  const auto source = iterate(run, input);
  std::optional<Value> best = source->next(run);
  if (!best) return run.undefined("No aggregated item, sequence was empty.");
  Value best_key = key_of(*best);
  while (std::optional<Value> item = source->next(run)) {
    Value key = key_of(*item);
    if (kMax ? less(run, best_key, key) : less(run, key, best_key)) {
      best = std::move(item);
      best_key = std::move(key);
    }
  }
  return std::move(*best);
}

Value unique(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p(run, "unique", arguments, {"case_sensitive", "attribute"});
  const bool keep_case = p.flag(0, false);
  const AttributePath path(run, p.value(1, Value::none()));
  auto seen = std::make_shared<std::unordered_multimap<size_t, Value>>();
  auto source = std::make_shared<std::shared_ptr<Iterator>>();
  return generate(run, input.depth() + 1, [=](Run& run) -> std::optional<Value> {
    if (*source == nullptr) *source = iterate(run, input);
    while (std::optional<Value> item = (*source)->next(run)) {
      Value key = path.get(run, *item);
      if (!keep_case) key = ignore_case(run, key);
      if (!hashable(key)) fail("unhashable type: '" + type_name(key) + "'");
      const size_t hash = hash_of(key);
      const auto [begin, end] = seen->equal_range(hash);
      const bool known = std::any_of(begin, end, [&](const auto& entry) {
        run.step();
        return same_key(entry.second, key);
      });
      if (known) continue;
      run.charge(sizeof(Value) + 32);
      seen->emplace(hash, std::move(key));
      return item;
    }
    return std::nullopt;
  });
}

constexpr Filter kFilters[] = {
    {"dictsort", dictsort},  {"groupby", groupby}, {"max", extreme<true>},
    {"min", extreme<false>}, {"sort", sort},       {"unique", unique},
};

}  // namespace

std::span<const Filter> order_filters() { return kFilters; }

}  // namespace spillway::model::jinja
