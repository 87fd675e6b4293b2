#include "model/jinja/evaluator_frames.h"
#include "model/jinja/iterate.h"
#include "model/jinja/macro.h"
#include "model/jinja/printing.h"

namespace spillway::model::jinja {

Evaluator::Flow Evaluator::execute(const Body& body) {
  const Nested nested(run_);
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const Statement& s) {
  run_.step();
  run_.set_line(s.line);
  switch (s.kind) {
    case StatementKind::kOutput:
      output(s);
      return Flow::kNormal;
    case StatementKind::kAssign:
      assign(s.targets[0], evaluate(*s.expressions[0]));
      return Flow::kNormal;
    case StatementKind::kFor:
      return loop(*s.loop);
    case StatementKind::kIf:
      return condition(s);
    case StatementKind::kMacro:
      variable(s.slot) = run_.object(std::make_shared<Macro>(*this, *s.macro, here_));
      return Flow::kNormal;
    case StatementKind::kCallBlock:
      call_block(s);
      return Flow::kNormal;
    case StatementKind::kGeneration: {
      const Value text = call_macro(*s.macro, here_, {});
      write(text.text());
      return Flow::kNormal;
    }
    case StatementKind::kAssignBlock:
    case StatementKind::kFilterBlock:
      return captured(s);
    case StatementKind::kWith:
      return with(s);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kScope:
      break;
  }
  return Flow::kNormal;
}

void Evaluator::output(const Statement& s) {
  for (const ExprPtr& expr : s.expressions) {
    if (expr->kind == ExprKind::kConstant && expr->constant.is_string()) {
      write(expr->constant.text());
      continue;
    }
    const Value value = evaluate(*expr);
    if (value.is_string()) {
      write(value.text());
    } else {
      write(to_text(run_, value));
    }
  }
}

Evaluator::Flow Evaluator::condition(const Statement& s) {
  for (const Branch& branch : s.branches) {
    if (truthy(run_, evaluate(*branch.test))) return execute(branch.body);
  }
  return execute(s.body);
}

Evaluator::Flow Evaluator::loop(const ForNode& node) {
  const Value iterable = evaluate(*node.iterable);
  if (!node.recursive) return loop_over(node, iterable, nullptr, 0);
  const Value text = loop_recursive(node, here_, iterable, 0);
  write(text.text());
  return Flow::kNormal;
}

// The body of a recursive loop is a function: it runs in an activation of its own and its text is
// what the call gives.
Value Evaluator::loop_recursive(const ForNode& node, const std::shared_ptr<Activation>& parent,
                                const Value& iterable, int64_t depth) {
  const Nested nested(run_);
  std::string text;
  {
    const Frame frame(*this, parent, node.body_slots);
    const Capture capture(*this, text);
    const auto recurse = [this, &node, parent](Run&, const Value& items, int64_t level) {
      return loop_recursive(node, parent, items, level);
    };
    loop_over(node, iterable, recurse, depth);
  }
  return run_.string(std::move(text));
}

Evaluator::Flow Evaluator::loop_over(const ForNode& node, const Value& all,
                                     const Loop::Recurse& recurse, int64_t depth) {
  const Value iterable = node.test == nullptr ? all : filtered(node, all);
  bool any = false;  // whether a body ran to its end, which is what `else` looks at
  if (node.has_loop) {
    loop_extended(node, iterable, recurse, depth, any);
  } else {
    loop_plain(node, iterable, any);
  }
  leave(node.scope);
  if (any || node.otherwise.empty()) return Flow::kNormal;
  enter(node.otherwise_scope);
  const Flow flow = execute(node.otherwise);
  leave(node.otherwise_scope);
  return flow;
}

Evaluator::Flow Evaluator::loop_plain(const ForNode& node, const Value& iterable, bool& any) {
  const auto items = iterate(run_, iterable);
  while (const std::optional<Value> item = items->next(run_)) {
    assign(node.bound, *item);
    enter(node.scope);
    const Flow flow = execute(node.body);
    if (flow == Flow::kBreak) break;
    any = any || flow == Flow::kNormal;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::loop_extended(const ForNode& node, const Value& iterable,
                                         const Loop::Recurse& recurse, int64_t depth, bool& any) {
  const auto state = std::make_shared<Loop>(run_, iterable, recurse, depth);
  // Whatever ends the loop: a `loop` that got away is kept by the run.
  struct Keeper {
    Run& run;
    const std::shared_ptr<Loop>& state;
    ~Keeper() {
      if (state.use_count() > 1) run.own(std::shared_ptr<Releasable>(state));
    }
  } const keeper{run_, state};
  here_->slots[node.loop_slot] = Value();
  while (state->advance(run_)) {
    const Value current = state->current();
    assign(node.bound, current);
    here_->slots[node.loop_slot] = run_.object(state);
    enter(node.scope);
    const Flow flow = execute(node.body);
    if (flow == Flow::kBreak) break;
    any = any || flow == Flow::kNormal;
  }
  here_->slots[node.loop_slot] = Value();
  return Flow::kNormal;
}

// The items that pass the loop's `if`, tested one by one as they are wanted.
Value Evaluator::filtered(const ForNode& node, const Value& iterable) {
  auto activation = std::make_shared<Activation>();
  activation->slots.resize(node.filter_slots);
  activation->parent = here_;
  const auto items = iterate(run_, iterable);
  bool entered = false;
  return generate(
      run_, iterable.depth() + 1,
      [this, &node, activation, items, entered](Run& run) mutable -> std::optional<Value> {
        const Frame frame(*this, activation);
        if (!entered) enter(node.filter_scope);
        entered = true;
        while (const std::optional<Value> item = items->next(run)) {
          assign(node.filtered, *item);
          if (truthy(run, evaluate(*node.test))) return packed(node.filtered);
        }
        return std::nullopt;
      });
}

void Evaluator::call_block(const Statement& s) {
  const Value caller = run_.object(std::make_shared<Macro>(*this, *s.macro, here_));
  const Value result = call(*s.expressions[0], &caller);
  write(to_text(run_, result));
}

Evaluator::Flow Evaluator::captured(const Statement& s) {
  enter(s.scope);
  std::string text;
  Flow flow = Flow::kNormal;
  {
    const Capture capture(*this, text);
    flow = execute(s.body);
  }
  if (flow != Flow::kNormal) return flow;
  Value result = run_.string(std::move(text));
  if (s.expressions[0] != nullptr) {
    const Value input = result;
    const Value* const saved = filter_input_;
    filter_input_ = &input;
    result = evaluate(*s.expressions[0]);
    filter_input_ = saved;
  }
  if (s.kind == StatementKind::kAssignBlock) {
    assign(s.targets[0], result);
  } else {
    write(to_text(run_, result));
  }
  leave(s.scope);
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::with(const Statement& s) {
  enter(s.scope);
  for (size_t i = 0; i < s.expressions.size(); ++i) {
    assign(s.targets[i], evaluate(*s.expressions[i]));
  }
  const Flow flow = execute(s.body);
  leave(s.scope);
  return flow;
}

}  // namespace spillway::model::jinja
