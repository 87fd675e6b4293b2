#include "model/jinja/attributes.h"

#include "model/jinja/iterate.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Method* method) : self_(std::move(self)), method_(method) {}

  uint32_t depth() const override { return self_.depth() + 1; }
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Run&) override {
    return "<built-in method " + std::string(method_->name) + " of " + jinja::type_name(self_) +
           " object" + std::string(kSomeAddress) + ">";
  }
  bool callable() const override { return true; }
  Value call(Run& run, Arguments arguments) override {
    return method_->call(run, self_, arguments);
  }

 private:
  Value self_;
  const Method* method_;
};

std::optional<Value> number_attribute(const Value& number, std::string_view name) {
  if (name == "real" || name == "numerator") {
    if (name == "numerator" && number.is(Kind::kFloat)) return std::nullopt;
    return number.is(Kind::kBool) ? Value::integer(number.as_int()) : number;
  }
  if (name == "imag") {
    return number.is(Kind::kFloat) ? Value::floating(0.0) : Value::integer(0);
  }
  if (name == "denominator" && !number.is(Kind::kFloat)) return Value::integer(1);
  return std::nullopt;
}

std::optional<Value> range_attribute(const Range& range, std::string_view name) {
  if (name == "start") return Value::integer(range.start);
  if (name == "stop") return Value::integer(range.stop);
  if (name == "step") return Value::integer(range.step);
  return std::nullopt;
}

std::string character_at(const String& text, int64_t index) {
  const std::string& bytes = text.bytes;
  if (text.is_ascii()) return bytes.substr(static_cast<size_t>(index), 1);
  const size_t begin = byte_offset(bytes, index);
  size_t end = begin;
  next_point(bytes, end);
  return bytes.substr(begin, end - begin);
}

// object[index] where Python allows it.
std::optional<Value> indexed(Run& run, const Value& object, int64_t index) {
  int64_t size = 0;
  if (object.is_string()) size = object.as_string().characters;
  if (object.is_sequence()) size = static_cast<int64_t>(object.items().size());
  if (object.is(Kind::kRange)) size = object.as_range().size();
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (object.is_sequence()) return object.items()[static_cast<size_t>(index)];
  if (object.is(Kind::kRange)) return object.as_range().at(index);
  run.step(object.as_string().is_ascii() ? 1 : 1 + index / 64);
  return run.string_like(object, character_at(object.as_string(), index));
}

std::optional<Value> item(Run& run, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    const Value* found = object.as_dict().find(key);
    if (found == nullptr) return std::nullopt;
    return *found;
  }
  const bool can_index = object.is_string() || object.is_sequence() || object.is(Kind::kRange);
  if (can_index && key.is_small_int()) return indexed(run, object, key.as_int());
  return std::nullopt;
}

// jinja2 names values by type in messages, except these.
std::string described(const Value& object) {
  return object.is_none() ? "None" : type_name(object) + " object";
}

Value missing(Run& run, const Value& object, const Value& key) {
  if (key.is_string()) {
    return run.undefined(quoted(described(object)) + " has no attribute " + quoted(key.text()));
  }
  return run.undefined(described(object) + " has no element " + to_repr(run, key));
}

}  // namespace

Value refused_attribute(const Value& object, std::string_view name) {
  return Value::undefined({"access to attribute " + quoted(name) + " of " +
                               quoted(type_name(object)) + " object is unsafe.",
                           true});
}

const Method* find_method(const Value& object, std::string_view name) {
  if (object.is_string()) return find_string_method(name);
  return find_collection_method(object.kind(), name);
}

std::optional<Value> python_attribute(Run& run, const Value& object, std::string_view name) {
  run.step();
  if (object.is(Kind::kObject)) return object.as_object().attribute(run, name);
  if (object.is(Kind::kNamespace)) {
    const Value* found = object.as_namespace().find(name);
    if (found == nullptr) return std::nullopt;
    return *found;
  }
  if (const Method* method = find_method(object, name)) {
    if (method->call == nullptr) return refused_attribute(object, name);
    return run.object(std::make_shared<BoundMethod>(object, method));
  }
  if (object.is_number()) return number_attribute(object, name);
  if (object.is(Kind::kRange)) return range_attribute(object.as_range(), name);
  if (object.is_group() && name == "grouper") return object.items()[0];
  if (object.is_group() && name == "list") return object.items()[1];
  return std::nullopt;
}

Value get_attribute(Run& run, const Value& object, const std::string& name) {
  if (object.is_undefined()) fail_undefined(object);
  if (auto found = python_attribute(run, object, name)) return std::move(*found);
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.as_dict().find(std::string_view(name))) return *found;
  }
  return missing(run, object, Value::string(name));
}

Value get_item(Run& run, const Value& object, const Value& key) {
  run.step();
  if (object.is_undefined()) fail_undefined(object);
  if (auto found = item(run, object, key)) return std::move(*found);
  if (key.is_string()) {
    if (auto found = python_attribute(run, object, key.text())) return std::move(*found);
  }
  return missing(run, object, key);
}

}  // namespace spillway::model::jinja
