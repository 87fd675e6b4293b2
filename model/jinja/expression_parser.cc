#include "model/jinja/expression_parser.h"

#include <algorithm>
#include <optional>

#include "model/jinja/parser.h"

namespace spillway::model::jinja {
namespace {

std::optional<CompareOp> compare_op(const Token& token) {
  if (token.type != TokenType::kOperator) return std::nullopt;
  const std::string& sign = token.text;
  if (sign == "==") return CompareOp::kEq;
  if (sign == "!=") return CompareOp::kNe;
  if (sign == "<") return CompareOp::kLt;
  if (sign == "<=") return CompareOp::kLe;
  if (sign == ">") return CompareOp::kGt;
  if (sign == ">=") return CompareOp::kGe;
  return std::nullopt;
}

std::optional<ExprKind> product_kind(const Token& token) {
  if (token.type != TokenType::kOperator) return std::nullopt;
  if (token.text == "*") return ExprKind::kMultiply;
  if (token.text == "/") return ExprKind::kDivide;
  if (token.text == "//") return ExprKind::kFloorDivide;
  if (token.text == "%") return ExprKind::kModulo;
  return std::nullopt;
}

}  // namespace

ExpressionParser::Depth::Depth(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > kParseDepthMax) {
    --parser_.depth_;
    parser_.tokens_.fail_here("nested more than " + std::to_string(kParseDepthMax) +
                              " levels deep");
  }
}

ExprPtr ExpressionParser::make(ExprKind kind, int line, std::vector<ExprPtr> items) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->items = std::move(items);
  for (const ExprPtr& item : expr->items) {
    if (item != nullptr) expr->depth = std::max(expr->depth, item->depth + 1);
  }
  if (expr->depth > kParseDepthMax) {
    throw Failure{"an expression has more than " + std::to_string(kParseDepthMax) + " levels",
                  line};
  }
  return expr;
}

ExprPtr ExpressionParser::binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) const {
  std::vector<ExprPtr> items;
  items.push_back(std::move(left));
  items.push_back(std::move(right));
  return make(kind, line, std::move(items));
}

ExprPtr ExpressionParser::expression(bool with_condition) {
  const Depth depth(*this);
  return with_condition ? condition() : disjunction();
}

ExprPtr ExpressionParser::condition() {
  const Depth depth(*this);
  const int line = tokens_.current().line;
  ExprPtr value = disjunction();
  while (tokens_.skip_name("if")) {
    ExprPtr test = disjunction();
    std::vector<ExprPtr> items;
    items.push_back(std::move(test));
    items.push_back(std::move(value));
    items.push_back(tokens_.skip_name("else") ? condition() : nullptr);
    value = make(ExprKind::kCondition, line, std::move(items));
  }
  return value;
}

ExprPtr ExpressionParser::disjunction() {
  ExprPtr left = conjunction();
  while (tokens_.is_name("or")) {
    const int line = tokens_.take().line;
    left = binary(ExprKind::kOr, line, std::move(left), conjunction());
  }
  return left;
}

ExprPtr ExpressionParser::conjunction() {
  ExprPtr left = negation();
  while (tokens_.is_name("and")) {
    const int line = tokens_.take().line;
    left = binary(ExprKind::kAnd, line, std::move(left), negation());
  }
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Depth depth(*this);
  const int line = tokens_.take().line;
  std::vector<ExprPtr> items;
  items.push_back(negation());
  return make(ExprKind::kNot, line, std::move(items));
}

ExprPtr ExpressionParser::comparison() {
  const int line = tokens_.current().line;
  std::vector<ExprPtr> items;
  items.push_back(sum());
  std::vector<CompareOp> ops;
  while (true) {
    if (const auto op = compare_op(tokens_.current())) {
      tokens_.take();
      ops.push_back(*op);
    } else if (tokens_.skip_name("in")) {
      ops.push_back(CompareOp::kIn);
    } else if (tokens_.is_name("not") && tokens_.look().type == TokenType::kName &&
               tokens_.look().text == "in") {
      tokens_.take();
      tokens_.take();
      ops.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    items.push_back(sum());
  }
  if (ops.empty()) return std::move(items[0]);
  ExprPtr expr = make(ExprKind::kCompare, line, std::move(items));
  expr->ops = std::move(ops);
  return expr;
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const Token sign = tokens_.take();
    left = binary(sign.text == "+" ? ExprKind::kAdd : ExprKind::kSubtract, sign.line,
                  std::move(left), concatenation());
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  const int line = tokens_.current().line;
  std::vector<ExprPtr> items;
  items.push_back(product());
  while (tokens_.skip_operator("~")) items.push_back(product());
  if (items.size() == 1) return std::move(items[0]);
  return make(ExprKind::kConcat, line, std::move(items));
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = power();
  while (const auto kind = product_kind(tokens_.current())) {
    const int line = tokens_.take().line;
    left = binary(*kind, line, std::move(left), power());
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary(true);
  while (tokens_.is_operator("**")) {
    const int line = tokens_.take().line;
    left = binary(ExprKind::kPower, line, std::move(left), unary(true));
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  const Depth depth(*this);
  ExprPtr value;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const Token sign = tokens_.take();
    std::vector<ExprPtr> items;
    items.push_back(unary(false));
    value =
        make(sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, sign.line, std::move(items));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filter_expression(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = tokens_.current();
  ExprPtr expr = make(ExprKind::kConstant, token.line);
  switch (token.type) {
    case TokenType::kName: {
      const std::string name = tokens_.take().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        expr->constant = Value::boolean(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        expr->constant = Value::none();
      } else {
        expr->kind = ExprKind::kName;
      }
      expr->name = name;
      return expr;
    }
    case TokenType::kString: {
      std::string text;
      while (tokens_.is(TokenType::kString)) text += tokens_.take().text;
      expr->constant = Value::string(std::move(text));
      return expr;
    }
    case TokenType::kInteger:
    case TokenType::kFloat:
      expr->constant = tokens_.take().number;
      return expr;
    default:
      break;
  }
  if (tokens_.skip_operator("(")) {
    expr = tuple({.parenthesised = true});
    tokens_.expect_operator(")");
    return expr;
  }
  if (tokens_.is_operator("[")) return list();
  if (tokens_.is_operator("{")) return dict();
  tokens_.fail_here("unexpected '" + describe(token) + "'");
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return tokens_.is(TokenType::kVariableEnd) || tokens_.is(TokenType::kBlockEnd) ||
         tokens_.is_operator(")") || (!end_name.empty() && tokens_.is_name(end_name));
}

ExprPtr ExpressionParser::tuple(TupleOptions options) {
  const Depth depth(*this);
  const int line = tokens_.current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) tokens_.expect_operator(",");
    if (at_tuple_end(options.end_name)) break;
    items.push_back(options.simplified ? primary() : expression(options.with_condition));
    if (!tokens_.is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!options.parenthesised) {
      tokens_.fail_here("Expected an expression, got '" + describe(tokens_.current()) + "'");
    }
  }
  return make(ExprKind::kTuple, line, std::move(items));
}

ExprPtr ExpressionParser::list() {
  const int line = tokens_.take().line;
  std::vector<ExprPtr> items;
  while (!tokens_.is_operator("]")) {
    if (!items.empty()) tokens_.expect_operator(",");
    if (tokens_.is_operator("]")) break;
    items.push_back(expression());
  }
  tokens_.expect_operator("]");
  return make(ExprKind::kList, line, std::move(items));
}

ExprPtr ExpressionParser::dict() {
  const int line = tokens_.take().line;
  std::vector<ExprPtr> items;
  while (!tokens_.is_operator("}")) {
    if (!items.empty()) tokens_.expect_operator(",");
    if (tokens_.is_operator("}")) break;
    items.push_back(expression());
    tokens_.expect_operator(":");
    items.push_back(expression());
  }
  tokens_.expect_operator("}");
  return make(ExprKind::kDict, line, std::move(items));
}

}  // namespace spillway::model::jinja
