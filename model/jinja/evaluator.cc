#include "model/jinja/evaluator.h"

#include "model/jinja/evaluator_frames.h"
#include "model/jinja/globals.h"
#include "model/jinja/iterate.h"
#include "model/jinja/printing.h"
#include "runtime/check.h"

namespace spillway::model::jinja {

std::string Evaluator::render(const Template& parsed) {
  std::string out;
  try {
    const Frame frame(*this, nullptr, parsed.slots);
    const Capture capture(*this, out);
    enter(parsed.scope);
    execute(parsed.body);
  } catch (Failure& failure) {
    if (failure.line == 0) failure.line = run_.line();
    throw;
  }
  return out;
}

void Evaluator::write(std::string_view text) {
  run_.charge(text.size());
  if (out_->size() + text.size() > static_cast<size_t>(run_.limits().output_bytes)) {
    throw Failure{
        "the template writes more than " + std::to_string(run_.limits().output_bytes) + " bytes", 0,
        true};
  }
  *out_ += text;
}

void Evaluator::enter(const Scope& scope) {
  for (const LoadStep& step : scope.enter) {
    Value value;
    if (step.from == LoadStep::From::kAlias) value = variable(step.alias);
    if (step.from == LoadStep::From::kContext) value = resolve(step.name);
    here_->slots[step.target] = std::move(value);
  }
}

void Evaluator::leave(const Scope& scope) {
  for (const uint16_t slot : scope.leave) here_->slots[slot] = Value();
}

Value& Evaluator::variable(Slot slot) {
  Activation* activation = here_.get();
  for (uint16_t i = 0; i < slot.hops; ++i) activation = activation->parent.get();
  CHECK(slot.index < activation->slots.size());
  return activation->slots[slot.index];
}

Value Evaluator::resolve(const std::string& name) const {
  const Value* found = context_.find(std::string_view(name));
  return found != nullptr ? *found : find_global(name);
}

Value Evaluator::read(const Expr& name) {
  const Value& value = variable(name.slot);
  const bool unset = value.is_undefined() && value.undefined_info() == nullptr;
  return unset ? run_.undefined(quoted(name.name) + " is undefined") : value;
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kSlot) {
    variable(target.slot) = value;
    return;
  }
  if (target.kind == Target::Kind::kNamespace) {
    const Value& space = variable(target.slot);
    if (!space.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
    run_.charge(64);
    space.as_namespace().set(target.attribute, value);
    return;
  }
  if (!iterable(value)) fail("cannot unpack non-iterable " + type_name(value) + " object");
  const auto source = iterate(run_, value);
  std::vector<Value> parts;
  while (std::optional<Value> part = source->next(run_)) {
    if (parts.size() == target.parts.size()) {
      fail("too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
    }
    parts.push_back(std::move(*part));
  }
  if (parts.size() < target.parts.size()) {
    fail("not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
         std::to_string(parts.size()) + ")");
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i]);
}

Value Evaluator::packed(const Target& target) {
  if (target.kind != Target::Kind::kTuple) return variable(target.slot);
  std::vector<Value> parts;
  for (const Target& part : target.parts) parts.push_back(packed(part));
  return run_.tuple(std::move(parts));
}

}  // namespace spillway::model::jinja
