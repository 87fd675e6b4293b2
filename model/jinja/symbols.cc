#include "model/jinja/symbols.h"

#include "runtime/check.h"

namespace spillway::model::jinja {
namespace {

// Calls `on_name(expr)` for every name the expression reads.
template <class OnName>
void walk_names(const Expr* expr, const OnName& on_name) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::kName) on_name(expr->name);
  for (const ExprPtr& item : expr->items) walk_names(item.get(), on_name);
  for (const auto& [name, value] : expr->keyword) walk_names(value.get(), on_name);
  walk_names(expr->rest.get(), on_name);
  walk_names(expr->keyword_rest.get(), on_name);
}

// Looks for a read of one name before any assignment to it, in jinja2's visiting order.
class UndeclaredFinder {
 public:
  explicit UndeclaredFinder(std::string_view name) : name_(name) {}

  bool found = false;

  void body(const Body& statements) {
    for (const auto& statement : statements) visit(*statement);
  }

 private:
  void read(const Expr* expr) {
    walk_names(expr,
               [&](const std::string& name) { found = found || (!declared_ && name == name_); });
  }
  void reads(const std::vector<ExprPtr>& exprs) {
    for (const ExprPtr& expr : exprs) read(expr.get());
  }
  void stores(const Expr& target) {
    walk_names(&target, [&](const std::string& name) { declared_ = declared_ || name == name_; });
  }

  void macro(const MacroNode& node) {
    for (const std::string& name : node.parameters) declared_ = declared_ || name == name_;
    reads(node.defaults);
    body(node.body);
  }

  void visit(const Statement& s) {
    if (s.kind == StatementKind::kFilterBlock) body(s.body);
    for (const ExprPtr& target : s.target_expressions) stores(*target);
    if (s.loop != nullptr) {
      stores(*s.loop->target);
      read(s.loop->iterable.get());
      body(s.loop->body);
      body(s.loop->otherwise);
      read(s.loop->test.get());
    }
    for (const Branch& branch : s.branches) {
      read(branch.test.get());
      body(branch.body);
    }
    reads(s.expressions);
    if (s.macro != nullptr) macro(*s.macro);
    if (s.kind != StatementKind::kFilterBlock) body(s.body);
  }

  std::string_view name_;
  bool declared_ = false;
};

}  // namespace

const Ident* Symbols::find(const std::string& name) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto found = scope->refs_.find(name);
    if (found != scope->refs_.end()) return &found->second;
  }
  return nullptr;
}

void Symbols::define(const std::string& name, Source source) {
  const Ident ident{level_, name};
  refs_[name] = ident;
  loads_[ident] = std::move(source);
}

void Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  define(name, {Load::kParameter, {}});
}

void Symbols::read(const std::string& name) {
  if (find(name) == nullptr) define(name, {Load::kContext, {}});
}

void Symbols::read(const Expr* expr) {
  walk_names(expr, [&](const std::string& name) { read(name); });
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (refs_.contains(name)) return;
  const Ident* outer = parent_ == nullptr ? nullptr : parent_->find(name);
  define(name, outer == nullptr ? Source{Load::kNothing, {}} : Source{Load::kAlias, *outer});
}

void Symbols::store_target(const Expr& target, bool as_parameter) {
  if (target.kind == ExprKind::kNamespaceRef) {
    read(target.base);
  } else if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& part : target.items) store_target(*part, as_parameter);
  } else if (as_parameter) {
    declare_parameter(target.name);
  } else {
    store(target.name);
  }
}

void Symbols::visit(const Body& body) {
  for (const auto& statement : body) visit(*statement);
}

void Symbols::visit(const Statement& s) {
  switch (s.kind) {
    case StatementKind::kIf:
      return visit_if(s, 0);
    case StatementKind::kFor:
      return read(s.loop->iterable.get());
    case StatementKind::kMacro:
      return store(s.macro->name);
    case StatementKind::kAssignBlock:
      return store_target(*s.target_expressions[0], false);
    case StatementKind::kAssign:
      read(s.expressions[0].get());
      return store_target(*s.target_expressions[0], false);
    default:
      for (const ExprPtr& expr : s.expressions) read(expr.get());
  }
}

// An if with its elifs: three branches are compared, the first's body, all elifs, and the else;
// each elif is an if of its own among the second.
void Symbols::visit_if(const Statement& s, size_t branch) {
  read(s.branches[branch].test.get());
  std::vector<Symbols> branches(3, *this);
  branches[0].visit(s.branches[branch].body);
  if (branch == 0) {
    for (size_t i = 1; i < s.branches.size(); ++i) branches[1].visit_if(s, i);
    branches[2].visit(s.body);
  }
  merge(branches);
}

// A name that only some branches set keeps what it had before where they do not run.
void Symbols::merge(const std::vector<Symbols>& branches) {
  std::map<std::string, size_t> counts;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stores_) {
      if (!stores_.contains(name)) ++counts[name];
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, ident] : branch.refs_) refs_[name] = ident;
    for (const auto& [ident, source] : branch.loads_) loads_[ident] = source;
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  for (const auto& [name, count] : counts) {
    if (count == branches.size()) continue;
    const Ident* target = find(name);
    CHECK(target != nullptr);
    const Ident* outer = parent_ == nullptr ? nullptr : parent_->find(name);
    loads_[*target] = outer == nullptr ? Source{Load::kContext, {}} : Source{Load::kAlias, *outer};
  }
}

bool reads_undeclared(const Body& body, std::string_view name) {
  UndeclaredFinder finder(name);
  finder.body(body);
  return finder.found;
}

}  // namespace spillway::model::jinja
