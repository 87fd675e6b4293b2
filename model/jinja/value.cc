#include "model/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "model/jinja/object.h"
#include "runtime/check.h"

namespace spillway::model::jinja {
namespace {

constexpr size_t kIndexedFrom = 8;  // fewer entries are quicker to scan

int64_t count_characters(std::string_view bytes) {
  int64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

uint32_t depth_of(const std::vector<Value>& items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  CHECK(depth < Value::kDepthMax);
  return depth + 1;
}

size_t hash_number(double value) {
  if (value == std::floor(value) && std::fabs(value) < 9.2e18) {
    return std::hash<int64_t>()(static_cast<int64_t>(value));
  }
  return std::hash<double>()(value);
}

// The exact comparison of an int with a float: a cast would round past 2^53.
bool same_int_float(int64_t integer, double floating) {
  if (!(floating >= -9223372036854775808.0 && floating < 9223372036854775808.0)) return false;
  return floating == std::floor(floating) && static_cast<int64_t>(floating) == integer;
}

void insert_index(Dict& dict, size_t hash, uint32_t entry) {
  const size_t mask = dict.index.size() - 1;
  size_t slot = hash & mask;
  while (dict.index[slot] != 0) slot = (slot + 1) & mask;
  dict.index[slot] = entry + 1;
}

void rebuild_index(Dict& dict) {
  size_t slots = 32;
  while (slots < dict.entries.size() * 4) slots *= 2;
  dict.index.assign(slots, 0);
  for (uint32_t i = 0; i < dict.entries.size(); ++i) {
    insert_index(dict, hash_of(dict.entries[i].first), i);
  }
}

template <class Same>
const Value* probe(const Dict& dict, size_t hash, Same same) {
  if (dict.index.empty()) {
    for (const Entry& entry : dict.entries) {
      if (same(entry.first)) return &entry.second;
    }
    return nullptr;
  }
  const size_t mask = dict.index.size() - 1;
  for (size_t slot = hash & mask; dict.index[slot] != 0; slot = (slot + 1) & mask) {
    const Entry& entry = dict.entries[dict.index[slot] - 1];
    if (same(entry.first)) return &entry.second;
  }
  return nullptr;
}

}  // namespace

Value Value::undefined(UndefinedInfo info) {
  Value value;
  value.object_ = std::make_shared<UndefinedInfo>(std::move(info));
  return value;
}

Value Value::none() {
  Value value;
  value.kind_ = Kind::kNone;
  return value;
}

Value Value::boolean(bool flag) {
  Value value;
  value.kind_ = Kind::kBool;
  value.scalar_.integer = flag ? 1 : 0;
  return value;
}

Value Value::integer(int64_t integer) {
  Value value;
  value.kind_ = Kind::kInt;
  value.scalar_.integer = integer;
  return value;
}

Value Value::big_integer(std::string digits) {
  CHECK(!digits.empty());
  Value value;
  value.kind_ = Kind::kBigInt;
  value.object_ = std::make_shared<std::string>(std::move(digits));
  return value;
}

Value Value::floating(double number) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.scalar_.floating = number;
  return value;
}

Value Value::string(std::string utf8) {
  Value value;
  value.kind_ = Kind::kString;
  const int64_t characters = count_characters(utf8);
  value.object_ = std::make_shared<String>(String{std::move(utf8), characters, false});
  return value;
}

Value Value::markup(std::string utf8) {
  Value value;
  value.kind_ = Kind::kString;
  const int64_t characters = count_characters(utf8);
  value.object_ = std::make_shared<String>(String{std::move(utf8), characters, true});
  return value;
}

Value Value::list(std::vector<Value> items) {
  Value value;
  value.kind_ = Kind::kList;
  const uint32_t depth = depth_of(items);
  value.object_ = std::make_shared<List>(List{std::move(items), depth});
  return value;
}

Value Value::tuple(std::vector<Value> items) {
  Value value = list(std::move(items));
  value.kind_ = Kind::kTuple;
  return value;
}

Value Value::group(Value grouper, Value items) {
  Value value = tuple({std::move(grouper), std::move(items)});
  value.scalar_.integer = 1;
  return value;
}

Value Value::dict(std::vector<Entry> entries) {
  auto dict = std::make_shared<Dict>();
  dict->entries.reserve(entries.size());
  for (Entry& entry : entries) {
    CHECK(hashable(entry.first));
    CHECK(entry.first.depth() < kDepthMax);
    CHECK(entry.second.depth() < kDepthMax);
    dict->depth = std::max({dict->depth, entry.first.depth() + 1, entry.second.depth() + 1});
    const size_t hash = hash_of(entry.first);
    const Value* known =
        probe(*dict, hash, [&](const Value& key) { return same_key(key, entry.first); });
    if (known != nullptr) {
      *const_cast<Value*>(known) = std::move(entry.second);
      continue;
    }
    dict->entries.push_back(std::move(entry));
    if (dict->entries.size() <= kIndexedFrom) continue;
    if (dict->entries.size() * 2 > dict->index.size()) {
      rebuild_index(*dict);
    } else {
      insert_index(*dict, hash, static_cast<uint32_t>(dict->entries.size() - 1));
    }
  }
  Value value;
  value.kind_ = Kind::kDict;
  value.object_ = std::move(dict);
  return value;
}

Value Value::range(int64_t start, int64_t stop, int64_t step) {
  CHECK(step != 0);
  Value value;
  value.kind_ = Kind::kRange;
  value.object_ = std::make_shared<Range>(Range{start, stop, step});
  return value;
}

Value Value::view(View view) {
  Value value;
  value.kind_ = Kind::kView;
  value.object_ = std::make_shared<View>(std::move(view));
  return value;
}

Value Value::name_space(std::shared_ptr<Namespace> attributes) {
  Value value;
  value.kind_ = Kind::kNamespace;
  value.object_ = std::move(attributes);
  return value;
}

Value Value::iterator(std::shared_ptr<Iterator> source) {
  Value value;
  value.kind_ = Kind::kIterator;
  value.object_ = std::move(source);
  return value;
}

Value Value::object(std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = Kind::kObject;
  value.object_ = std::move(object);
  return value;
}

bool Value::is_markup() const { return is_string() && as_string().markup; }

bool Value::is_number() const {
  return is_small_int() || kind_ == Kind::kFloat || kind_ == Kind::kBigInt;
}

bool Value::as_bool() const {
  CHECK(kind_ == Kind::kBool);
  return scalar_.integer != 0;
}

int64_t Value::as_int() const {
  CHECK(is_small_int());
  return scalar_.integer;
}

double Value::as_double() const {
  if (kind_ == Kind::kFloat) return scalar_.floating;
  return static_cast<double>(as_int());
}

const std::string& Value::text() const { return as_string().bytes; }

const String& Value::as_string() const {
  CHECK(kind_ == Kind::kString);
  return *static_cast<const String*>(object_.get());
}

const std::vector<Value>& Value::items() const {
  CHECK(is_sequence());
  return static_cast<const List*>(object_.get())->items;
}

const Dict& Value::as_dict() const {
  CHECK(kind_ == Kind::kDict);
  return *static_cast<const Dict*>(object_.get());
}

const Range& Value::as_range() const {
  CHECK(kind_ == Kind::kRange);
  return *static_cast<const Range*>(object_.get());
}

const View& Value::as_view() const {
  CHECK(kind_ == Kind::kView);
  return *static_cast<const View*>(object_.get());
}

const std::string& Value::digits() const {
  CHECK(kind_ == Kind::kBigInt);
  return *static_cast<const std::string*>(object_.get());
}

const UndefinedInfo* Value::undefined_info() const {
  CHECK(is_undefined());
  return static_cast<const UndefinedInfo*>(object_.get());
}

Namespace& Value::as_namespace() const {
  CHECK(kind_ == Kind::kNamespace);
  return *static_cast<Namespace*>(object_.get());
}

Iterator& Value::as_iterator() const {
  CHECK(kind_ == Kind::kIterator);
  return *static_cast<Iterator*>(object_.get());
}

Object& Value::as_object() const {
  CHECK(kind_ == Kind::kObject);
  return *static_cast<Object*>(object_.get());
}

uint32_t Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<const List*>(object_.get())->depth;
    case Kind::kDict:
      return static_cast<const Dict*>(object_.get())->depth;
    case Kind::kView:
      return static_cast<const View*>(object_.get())->dict.depth() + 1;
    case Kind::kIterator:
      return as_iterator().depth();
    case Kind::kObject:
      return as_object().depth();
    default:
      return 0;
  }
}

int64_t Range::size() const {
  const auto span = [](int64_t from, int64_t to, uint64_t by) -> int64_t {
    if (from >= to) return 0;
    const uint64_t distance = static_cast<uint64_t>(to) - static_cast<uint64_t>(from) - 1;
    const uint64_t count = distance / by;
    return count >= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
               ? std::numeric_limits<int64_t>::max()
               : static_cast<int64_t>(count) + 1;
  };
  if (step > 0) return span(start, stop, static_cast<uint64_t>(step));
  return span(stop, start, ~static_cast<uint64_t>(step) + 1);
}

const Value* Dict::find(const Value& key) const {
  if (!hashable(key)) return nullptr;
  return probe(*this, index.empty() ? 0 : hash_of(key),
               [&](const Value& other) { return same_key(other, key); });
}

const Value* Dict::find(std::string_view key) const {
  return probe(*this, index.empty() ? 0 : std::hash<std::string_view>()(key),
               [&](const Value& other) { return other.is_string() && other.text() == key; });
}

int64_t Dict::position(const Value& key) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (same_key(entries[i].first, key)) return static_cast<int64_t>(i);
  }
  return -1;
}

Value View::at(size_t index) const {
  const Entry& entry = dict.as_dict().entries[index];
  if (part == Part::kKeys) return entry.first;
  if (part == Part::kValues) return entry.second;
  return Value::tuple({entry.first, entry.second});
}

void Namespace::set(const std::string& name, Value value) {
  for (auto& [known, held] : attributes_) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(name, std::move(value));
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [known, held] : attributes_) {
    if (known == name) return &held;
  }
  return nullptr;
}

bool hashable(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      return false;
    case Kind::kTuple:
      return std::all_of(value.items().begin(), value.items().end(), hashable);
    default:
      return true;
  }
}

size_t hash_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 1;
    case Kind::kNone:
      return 2;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<int64_t>()(value.as_int());
    case Kind::kBigInt:
      return std::hash<std::string>()(value.digits());
    case Kind::kFloat:
      return hash_number(value.as_double());
    case Kind::kString:
      return std::hash<std::string_view>()(value.text());
    case Kind::kTuple: {
      size_t hash = 3;
      for (const Value& item : value.items()) hash = hash * 1000003 + hash_of(item);
      return hash;
    }
    default:
      return std::hash<const void*>()(value.identity());
  }
}

bool same_key(const Value& a, const Value& b) {
  if (a.is_small_int() && b.is_small_int()) return a.as_int() == b.as_int();
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return a.as_double() == b.as_double();
  if (a.is(Kind::kFloat) && b.is_small_int()) return same_int_float(b.as_int(), a.as_double());
  if (a.is_small_int() && b.is(Kind::kFloat)) return same_int_float(a.as_int(), b.as_double());
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBigInt:
      return a.digits() == b.digits();
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        same_key);
    case Kind::kRange: {
      const Range& x = a.as_range();
      const Range& y = b.as_range();
      const int64_t size = x.size();
      if (size != y.size()) return false;
      return size == 0 || (x.start == y.start && (size == 1 || x.step == y.step));
    }
    default:
      return a.identity() == b.identity();
  }
}

}  // namespace spillway::model::jinja
