#include "model/jinja/macro.h"

#include <algorithm>

#include "model/jinja/evaluator_frames.h"
#include "model/jinja/printing.h"

namespace spillway::model::jinja {

std::string Macro::repr(Run&) {
  return "<Macro " + (node_.name.empty() ? std::string("anonymous") : quoted(node_.name)) + ">";
}

Value Macro::call(Run&, Arguments arguments) {
  return evaluator_.call_macro(node_, around_, std::move(arguments));
}

std::optional<Value> Macro::attribute(Run& run, std::string_view name) {
  if (name == "name") {
    return node_.name.empty() ? Value::none() : Value::string(node_.name);
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : node_.parameters) names.push_back(run.string(parameter));
    return run.tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::boolean(node_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(node_.uses_varargs);
  if (name == "caller") return Value::boolean(node_.uses_caller);
  return std::nullopt;
}

Value Evaluator::call_macro(const MacroNode& node, const std::shared_ptr<Activation>& parent,
                            Arguments arguments) {
  const Nested nested(run_);
  const int line = run_.line();
  std::string text;
  {
    const Frame frame(*this, parent, node.slots);
    const Capture capture(*this, text);
    enter(node.scope);
    bind_arguments(node, std::move(arguments), here_->slots);
    execute(node.body);
  }
  run_.set_line(line);
  return run_.string(std::move(text));
}

void Evaluator::bind_arguments(const MacroNode& node, Arguments given, std::vector<Value>& slots) {
  const std::string name = node.name.empty() ? "None" : quoted(node.name);
  const size_t count = node.parameters.size();
  size_t next = 0;
  for (; next < count && next < given.positional.size(); ++next) {
    slots[node.parameter_slots[next]] = std::move(given.positional[next]);
  }
  for (size_t i = next; i < count; ++i) {
    // An unset slot marks what was not given: an undefined value that was passed stays itself.
    slots[node.parameter_slots[i]] = given.take(node.parameters[i]).value_or(Value());
  }
  size_t extra = count;
  if (node.uses_caller && !node.explicit_caller) {
    std::optional<Value> caller = given.take("caller");
    const bool none = !caller || caller->is_none();
    slots[node.parameter_slots[extra++]] =
        none ? run_.undefined("No caller defined") : std::move(*caller);
  }
  if (node.uses_kwargs) {
    std::vector<Entry> entries;
    for (auto& [key, value] : given.keyword) {
      entries.emplace_back(run_.string(key), std::move(value));
    }
    slots[node.parameter_slots[extra++]] = run_.dict(std::move(entries));
  } else if (!given.keyword.empty()) {
    if (given.find("caller") != nullptr) {
      fail("macro " + name +
           " was invoked with two values for the special caller argument. This is most likely a "
           "bug.");
    }
    fail("macro " + name + " takes no keyword argument " + quoted(given.keyword[0].first));
  }
  if (node.uses_varargs) {
    const size_t used = std::min(count, given.positional.size());
    slots[node.parameter_slots[extra]] = run_.tuple(
        {given.positional.begin() + static_cast<std::ptrdiff_t>(used), given.positional.end()});
  } else if (given.positional.size() > count) {
    fail("macro " + name + " takes not more than " + std::to_string(count) + " argument(s)");
  }
  for (size_t i = 0; i < count; ++i) {
    const Value& held = here_->slots[node.parameter_slots[i]];
    if (!held.is_undefined() || held.undefined_info() != nullptr) continue;
    const size_t without_default = count - node.defaults.size();
    Value value =
        i < without_default
            ? run_.undefined("parameter " + quoted(node.parameters[i]) + " was not provided")
            : evaluate(*node.defaults[i - without_default]);
    here_->slots[node.parameter_slots[i]] = std::move(value);
  }
}

}  // namespace spillway::model::jinja
