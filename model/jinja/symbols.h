// Which names a scope reads and sets, decided before anything runs, as jinja2 decides it: a name
// set anywhere in a scope belongs to that scope from its start; names only read come from the
// scopes around it or else from the context.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"

namespace spillway::model::jinja {

// A variable of one scope: the nesting level keeps inner and outer ones of a name apart.
struct Ident {
  int level;
  std::string name;
  auto operator<=>(const Ident&) const = default;
};

class Symbols {
 public:
  enum class Load : uint8_t { kParameter, kContext, kAlias, kNothing };
  struct Source {
    Load load;
    Ident alias;  // of kAlias
  };

  explicit Symbols(const Symbols* parent)
      : parent_(parent), level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  // Null when neither this scope nor one around it knows the name.
  const Ident* find(const std::string& name) const;
  const std::map<Ident, Source>& loads() const { return loads_; }

  void declare_parameter(const std::string& name);
  void read(const Expr* expr);  // every name an expression reads
  void read(const std::string& name);
  void store(const std::string& name);
  void store_target(const Expr& target, bool as_parameter);
  void visit(const Body& body);  // stops at the scopes inside

 private:
  void visit(const Statement& statement);
  void visit_if(const Statement& statement, size_t branch);
  void merge(const std::vector<Symbols>& branches);
  void define(const std::string& name, Source source);

  const Symbols* parent_;
  int level_;
  std::map<std::string, Ident> refs_;
  std::map<Ident, Source> loads_;
  std::set<std::string> stores_;
};

// Whether the statements read `name` without having set it, at any depth: what jinja2 asks of
// "loop", "caller", "varargs" and "kwargs".
bool reads_undeclared(const Body& body, std::string_view name);

}  // namespace spillway::model::jinja
