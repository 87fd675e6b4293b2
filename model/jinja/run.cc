#include "model/jinja/run.h"

#include <algorithm>

namespace spillway::model::jinja {
namespace {

[[noreturn]] void fail_limit(std::string message) { throw Failure{std::move(message), 0, true}; }

}  // namespace

void fail(std::string message) { throw Failure{std::move(message), 0, false}; }

Run::~Run() {
  for (const auto& value : namespaces_) value->clear();
  for (const auto& value : releasables_) value->release();
}

void Run::fail_steps() const {
  fail_limit("the template takes more than " + std::to_string(limits_.steps) +
             " steps; does it loop?");
}

void Run::charge(size_t bytes) {
  bytes_used_ += static_cast<int64_t>(std::min<size_t>(bytes, size_t{1} << 62));
  if (bytes_used_ > limits_.bytes) {
    fail_limit("the template makes more than " + std::to_string(limits_.bytes) +
               " bytes of values");
  }
}

void Run::enter() {
  if (++depth_ > limits_.depth) {
    --depth_;
    fail_limit("the template nests more than " + std::to_string(limits_.depth) +
               " evaluations; does a macro call itself?");
  }
}

void Run::check_depth(uint32_t depth) const {
  if (depth >= Value::kDepthMax) {
    fail_limit("the template nests values more than " + std::to_string(Value::kDepthMax) +
               " levels deep");
  }
}

Value Run::string(std::string utf8) {
  charge(utf8.size() + 64);
  return Value::string(std::move(utf8));
}

Value Run::string_like(const Value& model, std::string utf8) {
  charge(utf8.size() + 64);
  return model.is_markup() ? Value::markup(std::move(utf8)) : Value::string(std::move(utf8));
}

Value Run::list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value) + 64);
  for (const Value& item : items) check_depth(item.depth());
  return Value::list(std::move(items));
}

Value Run::tuple(std::vector<Value> items) {
  charge(items.size() * sizeof(Value) + 64);
  for (const Value& item : items) check_depth(item.depth());
  return Value::tuple(std::move(items));
}

Value Run::dict(std::vector<Entry> entries) {
  charge(entries.size() * (sizeof(Entry) + 16) + 64);
  for (const Entry& entry : entries) {
    check_depth(entry.first.depth());
    check_depth(entry.second.depth());
    if (!hashable(entry.first)) fail("a list or dict cannot be the key of a dict");
  }
  return Value::dict(std::move(entries));
}

Value Run::iterator(std::shared_ptr<Iterator> source) {
  charge(128);
  check_depth(source->depth());
  return Value::iterator(std::move(source));
}

Value Run::object(std::shared_ptr<Object> object) {
  charge(128);
  check_depth(object->depth());
  return Value::object(std::move(object));
}

Value Run::undefined(std::string message) const {
  return Value::undefined({std::move(message), false});
}

}  // namespace spillway::model::jinja
