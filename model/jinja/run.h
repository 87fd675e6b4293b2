// One rendering's bounds and belongings. Everything that evaluates a template counts its work here,
// so a template that loops, recurses or multiplies strings is stopped (case A10), whatever it does.
//
// Thread: one. Inside model/jinja/ a template's error travels as a Failure; parse() and render()
// of model/chat_template.h turn it into a Result, so none leaves the folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja/object.h"
#include "model/jinja/value.h"

namespace spillway::model::jinja {

// A template's error: cause, and the line where known. Internal to model/jinja/.
struct Failure {
  std::string message;
  int line = 0;
  bool limit = false;  // a bound was reached
};

[[noreturn]] void fail(std::string message);

struct Limits {
  int64_t steps = 20'000'000;          // expressions, iterations, items compared or printed
  int64_t bytes = int64_t{512} << 20;  // created by all strings and lists together
  int64_t output_bytes = int64_t{64} << 20;
  int depth = 1000;  // nested evaluations, macro calls included
};

class Run {
 public:
  explicit Run(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Limits& limits() const { return limits_; }
  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  // Each throws a Failure at its bound.
  void step(int64_t count = 1) {
    if ((steps_left_ -= count) < 0) fail_steps();
  }
  void charge(size_t bytes);
  void enter();
  void leave() { --depth_; }

  // Values made by the template: charged, and refused when nested too deeply.
  Value string(std::string utf8);
  Value string_like(const Value& model, std::string utf8);  // markup when `model` is
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value dict(std::vector<Entry> entries);  // fails on an unhashable key
  Value iterator(std::shared_ptr<Iterator> source);
  Value object(std::shared_ptr<Object> object);
  Value undefined(std::string message) const;

  // What may hold references in a ring is kept until the end, then emptied.
  void own(std::shared_ptr<Namespace> value) { namespaces_.push_back(std::move(value)); }
  void own(std::shared_ptr<Releasable> value) { releasables_.push_back(std::move(value)); }

 private:
  [[noreturn]] void fail_steps() const;
  void check_depth(uint32_t depth) const;

  Limits limits_;
  int64_t steps_left_;
  int64_t bytes_used_ = 0;
  int depth_ = 0;
  int line_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Releasable>> releasables_;
};

// Counts one level of evaluation while it lives.
class Nested {
 public:
  explicit Nested(Run& run) : run_(run) { run_.enter(); }
  ~Nested() { run_.leave(); }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Run& run_;
};

}  // namespace spillway::model::jinja
