// Runs a resolved template once. The tree and the context outlive it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/loop.h"
#include "model/jinja/run.h"

namespace spillway::model::jinja {

// The variables of one call of one function. What it nests in stays alive through `parent`.
struct Activation final : Releasable {
  std::vector<Value> slots;
  std::shared_ptr<Activation> parent;

  void release() override {
    std::vector<Value> held = std::move(slots);
    slots.clear();
    parent = nullptr;
  }
};

class Evaluator {
 public:
  // REQUIRES: `context` is a dict with string keys.
  Evaluator(Run& run, const Value& context) : run_(run), context_(context.as_dict()) {}

  // Throws a Failure whose line is set where it is known.
  std::string render(const Template& parsed);

  // What calling a macro, or `caller`, gives.
  Value call_macro(const MacroNode& node, const std::shared_ptr<Activation>& parent,
                   Arguments arguments);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class Frame;
  class Capture;

  // Statements (evaluator_statements.cc).
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  void output(const Statement& statement);
  Flow condition(const Statement& statement);
  Flow loop(const ForNode& node);
  Flow loop_over(const ForNode& node, const Value& iterable, const Loop::Recurse& recurse,
                 int64_t depth);
  Flow loop_plain(const ForNode& node, const Value& iterable, bool& any);
  Flow loop_extended(const ForNode& node, const Value& iterable, const Loop::Recurse& recurse,
                     int64_t depth, bool& any);
  Value loop_recursive(const ForNode& node, const std::shared_ptr<Activation>& parent,
                       const Value& iterable, int64_t depth);
  Value filtered(const ForNode& node, const Value& iterable);
  void call_block(const Statement& statement);
  Flow captured(const Statement& statement);
  Flow with(const Statement& statement);
  void bind_arguments(const MacroNode& node, Arguments arguments, std::vector<Value>& slots);

  // Scopes and variables.
  void enter(const Scope& scope);
  void leave(const Scope& scope);
  Value& variable(Slot slot);
  Value read(const Expr& name);
  Value resolve(const std::string& name) const;
  void assign(const Target& target, const Value& value);
  Value packed(const Target& target);

  // Expressions (evaluator_expressions.cc).
  Value evaluate(const Expr& expr);
  Value evaluate_operator(const Expr& expr);
  Value evaluate_container(const Expr& expr);
  Value compare(const Expr& expr);
  Value condition(const Expr& expr);
  Value concat(const Expr& expr);
  Value item(const Expr& expr);
  Value call(const Expr& expr, const Value* caller);
  Value filter(const Expr& expr);
  Value test(const Expr& expr);
  Arguments arguments(const Expr& expr);

  void write(std::string_view text);

  Run& run_;
  const Dict& context_;
  std::shared_ptr<Activation> here_;
  std::string* out_ = nullptr;
  const Value* filter_input_ = nullptr;  // of a filter block: the text it filters
};

}  // namespace spillway::model::jinja
