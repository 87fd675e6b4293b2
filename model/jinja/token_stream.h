// Tokens with one of look-ahead, and the two parsers' common questions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/lexer.h"
#include "model/jinja/run.h"

namespace spillway::model::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(TokenType type) const { return current().type == type; }
  bool is_operator(std::string_view sign) const {
    return is(TokenType::kOperator) && current().text == sign;
  }
  bool is_name(std::string_view name) const {
    return is(TokenType::kName) && current().text == name;
  }
  bool skip_operator(std::string_view sign) { return is_operator(sign) && (take(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }

  Token expect(TokenType type, const std::string& wanted) {
    if (!is(type)) fail_expected(wanted);
    return take();
  }
  void expect_operator(const std::string& sign) {
    if (!skip_operator(sign)) fail_expected(sign);
  }
  void expect_name(const std::string& name) {
    if (!skip_name(name)) fail_expected(name);
  }

  [[noreturn]] void fail_here(const std::string& message) const {
    throw Failure{message, current().line};
  }
  [[noreturn]] void fail_expected(const std::string& wanted) const {
    if (is(TokenType::kEnd)) {
      fail_here("unexpected end of template, expected '" + wanted + "'.");
    }
    fail_here("expected token '" + wanted + "', got '" + describe(current()) + "'");
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace spillway::model::jinja
