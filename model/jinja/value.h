// What a template computes with: Python's values as jinja2 sees them. A Value is a kind plus either
// a scalar or a shared pointer to an immutable object, so copies are cheap and cycles impossible:
// only namespaces change after construction, and the run that made one empties it at its end.
//
// Thread: a Value whose parts are scalars, strings, lists and dicts is safe to share read-only
// between threads; anything a template made belongs to its run. Strings are UTF-8 and valid.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::model::jinja {

enum class Kind : uint8_t {
  kUndefined,  // a name nobody set; prints as nothing, refuses attributes and arithmetic
  kNone,
  kBool,
  kInt,     // 64 bits; arithmetic that leaves them is an error
  kBigInt,  // an integer from JSON past 64 bits: carried and printed, never computed with
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,  // insertion order
  kRange,
  kView,       // dict.keys(), dict.values(), dict.items()
  kNamespace,  // namespace(): the one mutable thing
  kIterator,   // a generator: consumed once, always true
  kObject,     // macro, function, bound method, loop, cycler, joiner
};

class Value;
struct String;
struct List;
struct Dict;
struct Range;
struct View;
struct UndefinedInfo;
class Namespace;
class Iterator;
class Object;

using Entry = std::pair<Value, Value>;

class Value {
 public:
  // Nesting that list(), tuple() and dict() accept; deeper ones would overflow the stack of
  // whoever walks them. Check depth() of what comes from outside before wrapping it.
  static constexpr uint32_t kDepthMax = 256;

  Value() = default;  // undefined, without a name

  static Value undefined(UndefinedInfo info);
  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value big_integer(std::string digits);  // REQUIRES: optional '-', then digits
  static Value floating(double value);
  static Value string(std::string utf8);
  static Value markup(std::string utf8);         // a string that `safe` or `escape` marked as HTML
  static Value list(std::vector<Value> items);   // REQUIRES: depth() of each < kDepthMax
  static Value tuple(std::vector<Value> items);  // REQUIRES: depth() of each < kDepthMax
  // Pairs in order. Of equal keys the last value wins at the first one's place, as in Python.
  // REQUIRES: depth() of each < kDepthMax; keys are hashable (hash_of below says so)
  static Value dict(std::vector<Entry> entries);
  static Value range(int64_t start, int64_t stop, int64_t step);
  static Value view(View view);
  static Value group(Value grouper, Value items);  // a tuple with .grouper and .list
  static Value name_space(std::shared_ptr<Namespace> value);
  static Value iterator(std::shared_ptr<Iterator> value);
  static Value object(std::shared_ptr<Object> value);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const;
  bool is_number() const;  // bool, int, float: as Python's numbers.Number, big ones included
  bool is_small_int() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_group() const { return kind_ == Kind::kTuple && scalar_.flag; }

  // Each REQUIRES the matching kind.
  bool as_bool() const;
  int64_t as_int() const;    // kInt or kBool
  double as_double() const;  // kFloat, kInt or kBool
  const std::string& text() const;
  const String& as_string() const;
  const std::vector<Value>& items() const;  // kList or kTuple
  const Dict& as_dict() const;
  const Range& as_range() const;
  const View& as_view() const;
  const std::string& digits() const;            // kBigInt
  const UndefinedInfo* undefined_info() const;  // null for the unnamed one
  Namespace& as_namespace() const;
  Iterator& as_iterator() const;
  Object& as_object() const;
  template <class T>
  T* object_as() const;  // null when it is not a T

  uint32_t depth() const;  // 0 for scalars, 1 + the deepest item for containers
  const void* identity() const { return object_.get(); }

 private:
  union Scalar {
    bool flag;
    int64_t integer = 0;
    double floating;
  };
  Kind kind_ = Kind::kUndefined;
  Scalar scalar_;
  std::shared_ptr<void> object_;
};

struct UndefinedInfo {
  std::string message;  // what using it says; jinja2's wording
  bool unsafe = false;  // made by the sandbox's refusal
};

struct String {
  std::string bytes;
  int64_t characters;  // code points
  bool markup;

  bool is_ascii() const { return static_cast<size_t>(characters) == bytes.size(); }
};

struct List {
  std::vector<Value> items;
  uint32_t depth;
};

struct Range {
  int64_t start, stop, step;

  int64_t size() const;
  Value at(int64_t index) const { return Value::integer(start + index * step); }
};

// An insertion-ordered hash map, immutable once built.
struct Dict {
  std::vector<Entry> entries;
  std::vector<uint32_t> index;  // open addressing, entry number + 1; empty for few entries
  uint32_t depth = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  int64_t position(const Value& key) const;  // -1 when absent
};

struct View {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  Value dict;
  Part part;

  Value at(size_t index) const;
};

// Attributes in the order they were first set. Mutated by `set ns.name = ...` alone.
class Namespace {
 public:
  void set(const std::string& name, Value value);
  const Value* find(std::string_view name) const;
  const std::vector<std::pair<std::string, Value>>& attributes() const { return attributes_; }
  void clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// Whether Python could hash it (a dict's key must be), and the hash: equal values hash alike,
// 1, 1.0 and True included.
bool hashable(const Value& value);
size_t hash_of(const Value& value);

// Equality of two keys; what Python's == says about hashable values. Cheap, not recursive beyond
// tuples. (operators.h has the general, budgeted one.)
bool same_key(const Value& a, const Value& b);

template <class T>
T* Value::object_as() const {
  return kind_ == Kind::kObject ? dynamic_cast<T*>(&as_object()) : nullptr;
}

}  // namespace spillway::model::jinja
