#include "model/jinja/object.h"

#include "model/jinja/run.h"

namespace spillway::model::jinja {

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<Value> Arguments::take(std::string_view name) {
  for (size_t i = 0; i < keyword.size(); ++i) {
    if (keyword[i].first != name) continue;
    Value value = std::move(keyword[i].second);
    keyword.erase(keyword.begin() + static_cast<std::ptrdiff_t>(i));
    return value;
  }
  return std::nullopt;
}

Value Object::call(Run&, Arguments) {
  fail("'" + std::string(type_name()) + "' object is not callable");
}

std::optional<Value> Object::attribute(Run&, std::string_view) { return std::nullopt; }

std::optional<int64_t> Object::length(Run&) { return std::nullopt; }

}  // namespace spillway::model::jinja
