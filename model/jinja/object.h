// The open-ended kinds of value: iterators, and objects with attributes that can be called.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace spillway::model::jinja {

class Run;

// What a call passes: positions first, then names in the order they were written.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  const Value* find(std::string_view name) const;
  // Removes and returns it; nothing when absent.
  std::optional<Value> take(std::string_view name);
};

// A generator: items come once, in order, computed when asked for.
class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual std::optional<Value> next(Run& run) = 0;
  virtual uint32_t depth() const { return 1; }
  // What printing it shows, e.g. "generator object"; Python adds an address, we do not.
  virtual std::string_view type_name() const { return "generator"; }
};

class Object {
 public:
  virtual ~Object() = default;
  virtual uint32_t depth() const { return 1; }
  virtual std::string_view type_name() const = 0;
  virtual std::string repr(Run& run) = 0;
  virtual bool callable() const { return false; }
  // Throws unless callable().
  virtual Value call(Run& run, Arguments arguments);
  // Nothing when there is no such attribute.
  virtual std::optional<Value> attribute(Run& run, std::string_view name);
  // len(object), or nothing.
  virtual std::optional<int64_t> length(Run& run);
};

// Something a run keeps to its end because references may form a ring through it.
class Releasable {
 public:
  virtual ~Releasable() = default;
  virtual void release() = 0;  // drops what it refers to
};

}  // namespace spillway::model::jinja
