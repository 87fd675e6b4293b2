// What may follow an expression: subscripts, calls, filters and tests.
#include <algorithm>

#include "model/jinja/expression_parser.h"
#include "model/jinja/parser.h"

namespace spillway::model::jinja {
namespace {

std::vector<ExprPtr> only(ExprPtr expr) {
  std::vector<ExprPtr> items;
  items.push_back(std::move(expr));
  return items;
}

// The depth of an expression whose arguments were added after make().
void recount(Expr& expr) {
  const auto count = [&](const ExprPtr& part) {
    if (part != nullptr) expr.depth = std::max(expr.depth, part->depth + 1);
  };
  for (const ExprPtr& item : expr.items) count(item);
  for (const auto& [name, value] : expr.keyword) count(value);
  count(expr.rest);
  count(expr.keyword_rest);
  if (expr.depth > kParseDepthMax) {
    throw Failure{"an expression has more than " + std::to_string(kParseDepthMax) + " levels",
                  expr.line};
  }
}

bool starts_argument(const TokenStream& tokens) {
  switch (tokens.current().type) {
    case TokenType::kName:
      return !tokens.is_name("else") && !tokens.is_name("or") && !tokens.is_name("and");
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat:
      return true;
    default:
      return tokens.is_operator("[") || tokens.is_operator("{");
  }
}

}  // namespace

ExprPtr ExpressionParser::postfix(ExprPtr object) {
  while (true) {
    if (tokens_.is_operator(".") || tokens_.is_operator("[")) {
      object = subscript(std::move(object));
    } else if (tokens_.is_operator("(")) {
      const int line = tokens_.current().line;
      object = make(ExprKind::kCall, line, only(std::move(object)));
      arguments(*object);
    } else {
      return object;
    }
  }
}

ExprPtr ExpressionParser::filter_expression(ExprPtr object) {
  while (true) {
    if (tokens_.is_operator("|")) {
      object = filters(std::move(object));
    } else if (tokens_.is_name("is")) {
      object = test(std::move(object));
    } else if (tokens_.is_operator("(")) {
      const int line = tokens_.current().line;
      object = make(ExprKind::kCall, line, only(std::move(object)));
      arguments(*object);
    } else {
      return object;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  const Token token = tokens_.take();
  std::vector<ExprPtr> items = only(std::move(object));
  if (token.text == ".") {
    if (tokens_.is(TokenType::kInteger)) {
      ExprPtr index = make(ExprKind::kConstant, token.line);
      index->constant = tokens_.take().number;
      items.push_back(std::move(index));
      return make(ExprKind::kItem, token.line, std::move(items));
    }
    if (!tokens_.is(TokenType::kName)) tokens_.fail_here("expected name or number");
    ExprPtr expr = make(ExprKind::kAttribute, token.line, std::move(items));
    expr->name = tokens_.take().text;
    return expr;
  }
  std::vector<ExprPtr> indices;
  while (!tokens_.is_operator("]")) {
    if (!indices.empty()) tokens_.expect_operator(",");
    indices.push_back(subscribed());
  }
  tokens_.expect_operator("]");
  if (indices.size() == 1) {
    items.push_back(std::move(indices[0]));
  } else {
    for (const ExprPtr& index : indices) {
      if (index->kind == ExprKind::kSlice) {
        throw Failure{"a slice cannot be part of a tuple of indices", token.line};
      }
    }
    items.push_back(make(ExprKind::kTuple, token.line, std::move(indices)));
  }
  return make(ExprKind::kItem, token.line, std::move(items));
}

ExprPtr ExpressionParser::subscribed() {
  const int line = tokens_.current().line;
  std::vector<ExprPtr> parts;
  const auto at_end = [&] { return tokens_.is_operator("]") || tokens_.is_operator(","); };
  if (tokens_.skip_operator(":")) {
    parts.push_back(nullptr);
  } else {
    ExprPtr index = expression();
    if (!tokens_.skip_operator(":")) return index;
    parts.push_back(std::move(index));
  }
  parts.push_back(tokens_.is_operator(":") || at_end() ? nullptr : expression());
  const bool has_step = tokens_.skip_operator(":");
  parts.push_back(!has_step || at_end() ? nullptr : expression());
  return make(ExprKind::kSlice, line, std::move(parts));
}

void ExpressionParser::arguments(Expr& call) {
  const Depth depth(*this);
  const int line = tokens_.current().line;
  tokens_.expect_operator("(");
  const auto ensure = [&](bool fine) {
    if (!fine) throw Failure{"invalid syntax for function call expression", line};
  };
  bool first = true;
  while (!tokens_.is_operator(")")) {
    if (!first) {
      tokens_.expect_operator(",");
      if (tokens_.is_operator(")")) break;
    }
    first = false;
    if (tokens_.skip_operator("*")) {
      ensure(call.rest == nullptr && call.keyword_rest == nullptr);
      call.rest = expression();
    } else if (tokens_.skip_operator("**")) {
      ensure(call.keyword_rest == nullptr);
      call.keyword_rest = expression();
    } else if (tokens_.is(TokenType::kName) && tokens_.look().type == TokenType::kOperator &&
               tokens_.look().text == "=") {
      ensure(call.keyword_rest == nullptr);
      const std::string name = tokens_.take().text;
      tokens_.take();
      for (const auto& [known, value] : call.keyword) {
        if (known == name) throw Failure{"keyword argument repeated: " + name, line};
      }
      call.keyword.emplace_back(name, expression());
    } else {
      ensure(call.rest == nullptr && call.keyword_rest == nullptr && call.keyword.empty());
      call.items.push_back(expression());
    }
  }
  tokens_.expect_operator(")");
  recount(call);
}

ExprPtr ExpressionParser::filters(ExprPtr object, bool first_without_pipe) {
  while (first_without_pipe || tokens_.is_operator("|")) {
    if (!first_without_pipe) tokens_.take();
    first_without_pipe = false;
    const Token token = tokens_.expect(TokenType::kName, "name");
    ExprPtr filter = make(ExprKind::kFilter, token.line, only(std::move(object)));
    filter->name = token.text;
    while (tokens_.skip_operator(".")) {
      filter->name += "." + tokens_.expect(TokenType::kName, "name").text;
    }
    if (tokens_.is_operator("(")) arguments(*filter);
    object = std::move(filter);
  }
  return object;
}

ExprPtr ExpressionParser::test(ExprPtr object) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  ExprPtr expr = make(ExprKind::kTest, line, only(std::move(object)));
  expr->name = tokens_.expect(TokenType::kName, "name").text;
  while (tokens_.skip_operator(".")) {
    expr->name += "." + tokens_.expect(TokenType::kName, "name").text;
  }
  if (tokens_.is_operator("(")) {
    arguments(*expr);
  } else if (starts_argument(tokens_)) {
    if (tokens_.is_name("is")) tokens_.fail_here("You cannot chain multiple tests with is");
    expr->items.push_back(postfix(primary()));
    recount(*expr);
  }
  if (!negated) return expr;
  return make(ExprKind::kNot, line, only(std::move(expr)));
}

}  // namespace spillway::model::jinja
