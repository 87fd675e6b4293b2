#include "model/jinja/resolver.h"

#include <algorithm>
#include <map>

#include "model/jinja/filters.h"
#include "model/jinja/run.h"
#include "model/jinja/symbols.h"
#include "model/jinja/tests.h"
#include "runtime/check.h"

namespace spillway::model::jinja {
namespace {

// The activation of one function while its slots are being handed out.
struct Function {
  Function* parent;
  std::map<Ident, uint16_t> slots;

  uint16_t declare(const Ident& ident) {
    if (slots.size() >= 0xFFFF) fail("a template function has more than 65535 variables");
    return slots.try_emplace(ident, static_cast<uint16_t>(slots.size())).first->second;
  }
};

// Where a node stands.
struct Place {
  const Symbols* symbols;
  Function* function;
  bool soft = false;     // in an if: unknown filters are reported when they run
  bool in_loop = false;  // break and continue mean something
};

[[noreturn]] void fail_line(const std::string& message, int line) { throw Failure{message, line}; }

class Resolver {
 public:
  void run(Template& parsed) {
    Symbols symbols(nullptr);
    symbols.visit(parsed.body);
    Function function{nullptr, {}};
    const Place place{&symbols, &function};
    enter(parsed.scope, place);
    body(parsed.body, place);
    parsed.slots = static_cast<uint16_t>(function.slots.size());
  }

 private:
  static Slot slot_of(const Ident& ident, const Place& place) {
    uint16_t hops = 0;
    for (const Function* f = place.function; f != nullptr; f = f->parent, ++hops) {
      const auto found = f->slots.find(ident);
      if (found != f->slots.end()) return {hops, found->second};
    }
    CHECK(false);
    return {};
  }

  static Slot slot_of(const std::string& name, const Place& place) {
    const Ident* ident = place.symbols->find(name);
    CHECK(ident != nullptr);
    return slot_of(*ident, place);
  }

  // Gives the scope's own variables their slots and writes down what entering it does.
  static void enter(Scope& scope, const Place& place) {
    for (const auto& [ident, source] : place.symbols->loads()) {
      const uint16_t slot = place.function->declare(ident);
      scope.leave.push_back(slot);
      if (source.load == Symbols::Load::kParameter) continue;
      LoadStep step{LoadStep::From::kNothing, slot, {}, ident.name};
      if (source.load == Symbols::Load::kContext) step.from = LoadStep::From::kContext;
      if (source.load == Symbols::Load::kAlias) {
        step.from = LoadStep::From::kAlias;
        step.alias = slot_of(source.alias, place);
      }
      scope.enter.push_back(std::move(step));
    }
  }

  static Target target_of(const Expr& expr, const Place& place) {
    Target target;
    target.line = expr.line;
    if (expr.kind == ExprKind::kTuple) {
      target.kind = Target::Kind::kTuple;
      for (const ExprPtr& part : expr.items) target.parts.push_back(target_of(*part, place));
    } else if (expr.kind == ExprKind::kNamespaceRef) {
      target.kind = Target::Kind::kNamespace;
      target.slot = slot_of(expr.base, place);
      target.attribute = expr.name;
    } else {
      target.slot = slot_of(expr.name, place);
    }
    return target;
  }

  void expression(Expr* expr, Place place) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kCondition) place.soft = true;
    if (expr->kind == ExprKind::kName) expr->slot = slot_of(expr->name, place);
    if (expr->kind == ExprKind::kFilter) {
      expr->filter = find_filter(expr->name);
      if (expr->filter == nullptr && !place.soft) {
        fail_line("No filter named '" + expr->name + "'.", expr->line);
      }
    }
    if (expr->kind == ExprKind::kTest) {
      expr->test = find_test(expr->name);
      if (expr->test == nullptr && !place.soft) {
        fail_line("No test named '" + expr->name + "'.", expr->line);
      }
    }
    for (const ExprPtr& item : expr->items) expression(item.get(), place);
    for (const auto& [name, value] : expr->keyword) expression(value.get(), place);
    expression(expr->rest.get(), place);
    expression(expr->keyword_rest.get(), place);
  }

  void body(Body& statements, const Place& place) {
    for (const auto& statement : statements) visit(*statement, place);
  }

  void visit(Statement& s, const Place& place) {
    switch (s.kind) {
      case StatementKind::kOutput:
        return expressions(s, place);
      case StatementKind::kAssign:
        expressions(s, place);
        s.targets.push_back(target_of(*s.target_expressions[0], place));
        return;
      case StatementKind::kFor:
        return loop(*s.loop, s.line, place);
      case StatementKind::kIf:
        return condition(s, place);
      case StatementKind::kMacro:
        s.slot = slot_of(s.macro->name, place);
        return macro(*s.macro, s.line, place);
      case StatementKind::kCallBlock:
      case StatementKind::kGeneration:
        macro(*s.macro, s.line, place);
        return expressions(s, place);
      case StatementKind::kAssignBlock:
      case StatementKind::kFilterBlock:
        return captured(s, place);
      case StatementKind::kWith:
        return with(s, place);
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        if (!place.in_loop) {
          fail_line(s.kind == StatementKind::kBreak ? "'break' outside loop"
                                                    : "'continue' not properly in loop",
                    s.line);
        }
        return;
      case StatementKind::kScope:
        return;
    }
  }

  void expressions(Statement& s, const Place& place) {
    for (const ExprPtr& expr : s.expressions) expression(expr.get(), place);
  }

  void condition(Statement& s, Place place) {
    place.soft = true;
    for (Branch& branch : s.branches) {
      expression(branch.test.get(), place);
      body(branch.body, place);
    }
    body(s.body, place);
  }

  void captured(Statement& s, const Place& place) {
    Symbols symbols(place.symbols);
    symbols.visit(s.body);
    symbols.read(s.expressions[0].get());
    const Place inner{&symbols, place.function, false, place.in_loop};
    enter(s.scope, inner);
    body(s.body, inner);
    expression(s.expressions[0].get(), inner);
    if (s.kind == StatementKind::kAssignBlock) {
      s.targets.push_back(target_of(*s.target_expressions[0], place));
    }
  }

  void with(Statement& s, const Place& place) {
    Symbols symbols(place.symbols);
    for (const ExprPtr& target : s.target_expressions) symbols.store_target(*target, true);
    symbols.visit(s.body);
    const Place inner{&symbols, place.function, false, place.in_loop};
    enter(s.scope, inner);
    expressions(s, place);
    for (const ExprPtr& target : s.target_expressions) {
      s.targets.push_back(target_of(*target, inner));
    }
    body(s.body, inner);
  }

  void loop(ForNode& node, int line, const Place& place) {
    if (stores_loop(node)) {
      fail_line("Can't assign to special loop variable in for-loop target", line);
    }
    node.has_loop = node.recursive || reads_undeclared(node.body, "loop");
    if (node.test != nullptr) loop_filter(node, place);
    expression(node.iterable.get(), place);

    Function own{place.function, {}};
    Function* const function = node.recursive ? &own : place.function;
    Symbols symbols(place.symbols);
    if (node.has_loop) symbols.declare_parameter("loop");
    symbols.store_target(*node.target, true);
    symbols.visit(node.body);
    const Place inside{&symbols, function, false, true};
    enter(node.scope, inside);
    if (node.has_loop) node.loop_slot = slot_of("loop", inside).index;
    node.bound = target_of(*node.target, inside);
    body(node.body, inside);

    Symbols otherwise(place.symbols);
    otherwise.visit(node.otherwise);
    const Place after{&otherwise, function, false, !node.recursive && place.in_loop};
    enter(node.otherwise_scope, after);
    body(node.otherwise, after);
    node.body_slots = static_cast<uint16_t>(own.slots.size());
  }

  // `if` of a for: a function of its own, which sees the target and what is around the loop.
  void loop_filter(ForNode& node, const Place& place) {
    Symbols symbols(place.symbols);
    symbols.store_target(*node.target, true);
    symbols.read(node.test.get());
    Function own{place.function, {}};
    const Place inside{&symbols, &own};
    enter(node.filter_scope, inside);
    node.filtered = target_of(*node.target, inside);
    expression(node.test.get(), inside);
    node.filter_slots = static_cast<uint16_t>(own.slots.size());
  }

  void macro(MacroNode& node, int line, const Place& place) {
    Symbols symbols(place.symbols);
    const auto has = [&](const char* name) {
      return std::find(node.parameters.begin(), node.parameters.end(), name) !=
             node.parameters.end();
    };
    for (const std::string& name : node.parameters) symbols.declare_parameter(name);
    node.explicit_caller = has("caller");
    node.uses_caller = reads_undeclared(node.body, "caller");
    if (node.uses_caller && node.explicit_caller) {
      const auto at = std::find(node.parameters.begin(), node.parameters.end(), "caller");
      if (static_cast<size_t>(node.parameters.end() - at) > node.defaults.size()) {
        fail_line(
            "When defining macros or call blocks the special \"caller\" argument must be omitted "
            "or be given a default.",
            line);
      }
    }
    node.uses_kwargs = !has("kwargs") && reads_undeclared(node.body, "kwargs");
    node.uses_varargs = !has("varargs") && reads_undeclared(node.body, "varargs");
    std::vector<std::string> extra;
    if (node.uses_caller && !node.explicit_caller) extra.emplace_back("caller");
    if (node.uses_kwargs) extra.emplace_back("kwargs");
    if (node.uses_varargs) extra.emplace_back("varargs");
    for (const std::string& name : extra) symbols.declare_parameter(name);
    for (const ExprPtr& value : node.defaults) symbols.read(value.get());
    symbols.visit(node.body);

    Function own{place.function, {}};
    const Place inside{&symbols, &own};
    enter(node.scope, inside);
    for (const auto* names : {&node.parameters, &extra}) {
      for (const std::string& name : *names) {
        node.parameter_slots.push_back(slot_of(name, inside).index);
      }
    }
    for (const ExprPtr& value : node.defaults) expression(value.get(), inside);
    body(node.body, inside);
    node.slots = static_cast<uint16_t>(own.slots.size());
  }

  static bool names_loop(const Expr& target) {
    if (target.kind == ExprKind::kName) return target.name == "loop";
    return target.kind == ExprKind::kTuple &&
           std::any_of(target.items.begin(), target.items.end(),
                       [](const ExprPtr& part) { return names_loop(*part); });
  }

  static bool stores_loop(const ForNode& node) {
    return names_loop(*node.target) || stores_loop(node.body) || stores_loop(node.otherwise);
  }

  static bool stores_loop(const Body& statements) {
    return std::any_of(statements.begin(), statements.end(), [](const auto& s) {
      const bool assigns =
          s->kind == StatementKind::kAssign || s->kind == StatementKind::kAssignBlock;
      return (assigns && names_loop(*s->target_expressions[0])) ||
             (s->loop != nullptr && stores_loop(*s->loop)) ||
             (s->macro != nullptr && stores_loop(s->macro->body)) ||
             std::any_of(s->branches.begin(), s->branches.end(),
                         [](const Branch& branch) { return stores_loop(branch.body); }) ||
             stores_loop(s->body);
    });
  }
};

}  // namespace

void resolve(Template& parsed) { Resolver().run(parsed); }

}  // namespace spillway::model::jinja
