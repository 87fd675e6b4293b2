// Jinja2's expression grammar over a token stream.
#pragma once

#include "model/jinja/ast.h"
#include "model/jinja/token_stream.h"

namespace spillway::model::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // Counts nesting while it lives; throws at kParseDepthMax. Statements nest by it too.
  class Depth {
   public:
    explicit Depth(ExpressionParser& parser);
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    ExpressionParser& parser_;
  };

  ExprPtr expression(bool with_condition = true);

  struct TupleOptions {
    bool simplified = false;  // names and literals only
    bool with_condition = true;
    bool parenthesised = false;      // an empty tuple is fine
    std::string_view end_name = {};  // a name that ends it, e.g. "in"
  };
  // An expression, or a tuple where commas stand.
  ExprPtr tuple(TupleOptions options);

  // A chain of filters on `object` (null in a filter block or a set block).
  ExprPtr filters(ExprPtr object, bool first_without_pipe = false);

  ExprPtr make(ExprKind kind, int line, std::vector<ExprPtr> items = {}) const;

 private:
  ExprPtr condition();
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter);
  ExprPtr primary();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr object);
  ExprPtr filter_expression(ExprPtr object);
  ExprPtr subscript(ExprPtr object);
  ExprPtr subscribed();
  ExprPtr test(ExprPtr object);
  void arguments(Expr& call);
  ExprPtr binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) const;
  bool at_tuple_end(std::string_view end_name) const;

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace spillway::model::jinja
