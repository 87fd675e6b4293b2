#include "model/jinja/attributes.h"
#include "model/jinja/evaluator_frames.h"
#include "model/jinja/filters.h"
#include "model/jinja/iterate.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/jinja/tests.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {

Value Evaluator::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::kConstant) {
    run_.step();
    return expr.constant;
  }
  const Nested nested(run_);
  run_.step();
  run_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::kName:
      return read(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
      return evaluate_container(expr);
    case ExprKind::kNot:
      return Value::boolean(!truthy(run_, evaluate(*expr.items[0])));
    case ExprKind::kAnd: {
      Value left = evaluate(*expr.items[0]);
      return truthy(run_, left) ? evaluate(*expr.items[1]) : std::move(left);
    }
    case ExprKind::kOr: {
      Value left = evaluate(*expr.items[0]);
      return truthy(run_, left) ? std::move(left) : evaluate(*expr.items[1]);
    }
    case ExprKind::kConcat:
      return concat(expr);
    case ExprKind::kCompare:
      return compare(expr);
    case ExprKind::kCondition:
      return condition(expr);
    case ExprKind::kAttribute:
      return get_attribute(run_, evaluate(*expr.items[0]), expr.name);
    case ExprKind::kItem:
      return item(expr);
    case ExprKind::kCall:
      return call(expr, nullptr);
    case ExprKind::kFilter:
      return filter(expr);
    case ExprKind::kTest:
      return test(expr);
    default:
      return evaluate_operator(expr);
  }
}

Value Evaluator::evaluate_operator(const Expr& expr) {
  const Value left = evaluate(*expr.items[0]);
  if (expr.kind == ExprKind::kNegate) return negate(run_, left);
  if (expr.kind == ExprKind::kPlus) return plus(run_, left);
  const Value right = evaluate(*expr.items[1]);
  run_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::kAdd:
      return add(run_, left, right);
    case ExprKind::kSubtract:
      return subtract(run_, left, right);
    case ExprKind::kMultiply:
      return multiply(run_, left, right);
    case ExprKind::kDivide:
      return divide(run_, left, right);
    case ExprKind::kFloorDivide:
      return floor_divide(run_, left, right);
    case ExprKind::kModulo:
      return modulo(run_, left, right);
    default:
      return power(run_, left, right);
  }
}

Value Evaluator::evaluate_container(const Expr& expr) {
  if (expr.kind == ExprKind::kDict) {
    std::vector<Entry> entries;
    for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
      Value key = evaluate(*expr.items[i]);
      entries.emplace_back(std::move(key), evaluate(*expr.items[i + 1]));
    }
    return run_.dict(std::move(entries));
  }
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item));
  return expr.kind == ExprKind::kList ? run_.list(std::move(items)) : run_.tuple(std::move(items));
}

// a < b < c: each operand once, and none after the first that fails.
Value Evaluator::compare(const Expr& expr) {
  Value left = evaluate(*expr.items[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1]);
    bool holds = false;
    switch (expr.ops[i]) {
      case CompareOp::kEq:
        holds = equal(run_, left, right);
        break;
      case CompareOp::kNe:
        holds = !equal(run_, left, right);
        break;
      case CompareOp::kLt:
        holds = less(run_, left, right);
        break;
      case CompareOp::kLe:
        holds = less_equal(run_, left, right);
        break;
      case CompareOp::kGt:
        holds = less(run_, right, left);
        break;
      case CompareOp::kGe:
        holds = less_equal(run_, right, left);
        break;
      case CompareOp::kIn:
        holds = contains(run_, right, left);
        break;
      case CompareOp::kNotIn:
        holds = !contains(run_, right, left);
        break;
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::condition(const Expr& expr) {
  if (truthy(run_, evaluate(*expr.items[0]))) return evaluate(*expr.items[1]);
  if (expr.items[2] != nullptr) return evaluate(*expr.items[2]);
  return run_.undefined("the inline if-expression on line " + std::to_string(expr.line) +
                        " evaluated to false and no else section was defined.");
}

Value Evaluator::concat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& item : expr.items) append_text(run_, text, evaluate(*item));
  return run_.string(std::move(text));
}

Value Evaluator::item(const Expr& expr) {
  const Value object = evaluate(*expr.items[0]);
  const Expr& index = *expr.items[1];
  if (index.kind != ExprKind::kSlice) return get_item(run_, object, evaluate(index));
  const auto bound = [&](const ExprPtr& part) {
    return part == nullptr ? Value::none() : evaluate(*part);
  };
  const Value start = bound(index.items[0]);
  const Value stop = bound(index.items[1]);
  return slice(run_, object, start, stop, bound(index.items[2]));
}

Arguments Evaluator::arguments(const Expr& expr) {
  Arguments out;
  out.positional.reserve(expr.items.size() - 1);
  for (size_t i = 1; i < expr.items.size(); ++i) out.positional.push_back(evaluate(*expr.items[i]));
  for (const auto& [name, value] : expr.keyword) out.keyword.emplace_back(name, evaluate(*value));
  if (expr.rest != nullptr) {
    for (Value& value : to_items(run_, evaluate(*expr.rest))) {
      out.positional.push_back(std::move(value));
    }
  }
  if (expr.keyword_rest == nullptr) return out;
  const Value more = evaluate(*expr.keyword_rest);
  if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping, not " + type_name(more));
  for (const auto& [key, value] : more.as_dict().entries) {
    if (!key.is_string()) fail("keywords must be strings");
    if (out.find(key.text()) != nullptr) {
      fail("got multiple values for keyword argument '" + key.text() + "'");
    }
    run_.step();
    out.keyword.emplace_back(key.text(), value);
  }
  return out;
}

Value Evaluator::call(const Expr& expr, const Value* caller) {
  const Expr& callee = *expr.items[0];
  const Method* method = nullptr;
  Value object;
  if (callee.kind == ExprKind::kAttribute) {  // a method call needs no bound method
    object = evaluate(*callee.items[0]);
    method = find_method(object, callee.name);
    if (method == nullptr || method->call == nullptr) {
      object = get_attribute(run_, object, callee.name);
      method = nullptr;
    }
  } else {
    object = evaluate(callee);
  }
  Arguments given = arguments(expr);
  if (caller != nullptr) given.keyword.emplace_back("caller", *caller);
  run_.set_line(expr.line);
  if (method != nullptr) return method->call(run_, object, given);
  if (object.is_undefined()) fail_undefined(object);
  if (!object.is(Kind::kObject)) fail("'" + type_name(object) + "' object is not callable");
  return object.as_object().call(run_, std::move(given));
}

Value Evaluator::filter(const Expr& expr) {
  const Value input = expr.items[0] != nullptr ? evaluate(*expr.items[0]) : *filter_input_;
  const Arguments given = arguments(expr);
  run_.set_line(expr.line);
  if (expr.filter == nullptr) fail("No filter named " + quoted(expr.name) + " found.");
  return expr.filter->call(run_, input, given);
}

Value Evaluator::test(const Expr& expr) {
  const Value value = evaluate(*expr.items[0]);
  const Arguments given = arguments(expr);
  run_.set_line(expr.line);
  if (expr.test == nullptr) fail("No test named " + quoted(expr.name) + " found.");
  return Value::boolean(expr.test->call(run_, value, given));
}

}  // namespace spillway::model::jinja
