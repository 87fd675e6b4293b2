#include "model/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "model/jinja/expression_parser.h"
#include "model/jinja/token_stream.h"

namespace spillway::model::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Template run() {
    Template result;
    result.body = body({});
    return result;
  }

 private:
  using Statements = std::unique_ptr<Statement>;

  Statements make(StatementKind kind, int line) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  bool at_name_of(Ends ends) const {
    return tokens_.is(TokenType::kName) &&
           std::find(ends.begin(), ends.end(), tokens_.current().text) != ends.end();
  }

  // Statements until a tag named in `ends`, whose name becomes the current token; or, with no
  // `ends`, until the template's end.
  Body body(Ends ends) {
    const ExpressionParser::Depth depth(expressions_);
    Body out;
    Statements print;
    const auto flush = [&] {
      if (print != nullptr) out.push_back(std::move(print));
      print = nullptr;
    };
    const auto print_one = [&](ExprPtr expr) {
      if (print == nullptr) print = make(StatementKind::kOutput, expr->line);
      print->expressions.push_back(std::move(expr));
    };
    while (!tokens_.is(TokenType::kEnd)) {
      if (tokens_.is(TokenType::kData)) {
        ExprPtr text = expressions_.make(ExprKind::kConstant, tokens_.current().line);
        text->constant = Value::string(tokens_.take().text);
        print_one(std::move(text));
      } else if (tokens_.is(TokenType::kVariableBegin)) {
        tokens_.take();
        print_one(expressions_.tuple({}));
        tokens_.expect(TokenType::kVariableEnd, "end of print statement");
      } else {
        flush();
        tokens_.expect(TokenType::kBlockBegin, "begin of statement block");
        if (at_name_of(ends)) return out;
        out.push_back(statement(ends));
        tokens_.expect(TokenType::kBlockEnd, "end of statement block");
      }
    }
    flush();
    if (ends.size() > 0) fail_unclosed(ends);
    return out;
  }

  static std::string listed(Ends ends) {
    std::string names;
    for (const std::string_view end : ends) {
      names += (names.empty() ? "'" : " or '") + std::string(end) + "'";
    }
    return names;
  }

  [[noreturn]] void fail_unclosed(Ends ends) const {
    std::string message = "Unexpected end of template. Jinja was looking for " + listed(ends) + ".";
    if (!open_tags_.empty()) {
      message += " The innermost block that needs to be closed is '" + open_tags_.back().first +
                 "' of line " + std::to_string(open_tags_.back().second) + ".";
    }
    tokens_.fail_here(message);
  }

  // After a tag's head: its body, up to a tag of `ends`.
  Body block(Ends ends) {
    tokens_.skip_operator(":");
    tokens_.expect(TokenType::kBlockEnd, "end of statement block");
    return body(ends);
  }

  Body block_to(const char* end) {
    Body out = block({end});
    tokens_.take();
    return out;
  }

  Statements statement(Ends ends) {
    if (!tokens_.is(TokenType::kName)) tokens_.fail_here("tag name expected");
    const Token tag = tokens_.current();
    open_tags_.emplace_back(tag.text, tag.line);
    Statements out = dispatch(tag.text);
    if (out == nullptr) {
      std::string message = "Encountered unknown tag '" + tag.text + "'.";
      if (ends.size() > 0) message += " Jinja was looking for " + listed(ends) + ".";
      throw Failure{message, tag.line};
    }
    open_tags_.pop_back();
    return out;
  }

  // Null for an unknown tag.
  Statements dispatch(const std::string& tag) {
    if (tag == "for") return loop();
    if (tag == "if") return condition();
    if (tag == "set") return assignment();
    if (tag == "macro") return macro();
    if (tag == "call") return call_block();
    if (tag == "filter") return filter_block();
    if (tag == "with") return with();
    if (tag == "print") return print();
    if (tag == "generation") return generation();
    if (tag == "break") return make(StatementKind::kBreak, tokens_.take().line);
    if (tag == "continue") return make(StatementKind::kContinue, tokens_.take().line);
    for (const char* refused : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (tag == refused) {
        tokens_.fail_here("the tag '" + tag + "' is not supported: a chat template stands alone");
      }
    }
    return nullptr;
  }

  // Whether the expression can stand left of "=".
  static bool assignable(const Expr& target) {
    if (target.kind == ExprKind::kNamespaceRef) return true;
    if (target.kind == ExprKind::kTuple) {
      return std::all_of(target.items.begin(), target.items.end(),
                         [](const ExprPtr& part) { return assignable(*part); });
    }
    return target.kind == ExprKind::kName;
  }

  ExprPtr assign_target(std::string_view end_name, bool with_namespace) {
    const Token first = tokens_.current();
    if (with_namespace && first.type == TokenType::kName &&
        tokens_.look().type == TokenType::kOperator && tokens_.look().text == ".") {
      ExprPtr target = expressions_.make(ExprKind::kNamespaceRef, first.line);
      target->base = tokens_.take().text;
      tokens_.take();
      target->name = tokens_.expect(TokenType::kName, "name").text;
      return target;
    }
    ExprPtr target = expressions_.tuple({.simplified = true, .end_name = end_name});
    if (!assignable(*target)) {
      throw Failure{"can't assign to '" + (first.text.empty() ? "this" : first.text) + "'",
                    first.line};
    }
    return target;
  }

  std::string plain_name() {
    const Token token = tokens_.expect(TokenType::kName, "name");
    for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
      if (token.text == constant) throw Failure{"can't assign to '" + token.text + "'", token.line};
    }
    return token.text;
  }

  Statements assignment() {
    const int line = tokens_.take().line;
    ExprPtr target = assign_target({}, true);
    if (tokens_.skip_operator("=")) {
      Statements out = make(StatementKind::kAssign, line);
      out->target_expressions.push_back(std::move(target));
      out->expressions.push_back(expressions_.tuple({}));
      return out;
    }
    Statements out = make(StatementKind::kAssignBlock, line);
    out->target_expressions.push_back(std::move(target));
    out->expressions.push_back(expressions_.filters(nullptr));
    out->body = block_to("endset");
    return out;
  }

  Statements loop() {
    Statements out = make(StatementKind::kFor, tokens_.take().line);
    out->loop = std::make_unique<ForNode>();
    ForNode& node = *out->loop;
    node.target = assign_target("in", false);
    tokens_.expect_name("in");
    node.iterable = expressions_.tuple({.with_condition = false, .end_name = "recursive"});
    if (tokens_.skip_name("if")) node.test = expressions_.expression();
    node.recursive = tokens_.skip_name("recursive");
    node.body = block({"endfor", "else"});
    if (tokens_.take().text == "else") node.otherwise = block_to("endfor");
    return out;
  }

  Statements condition() {
    Statements out = make(StatementKind::kIf, tokens_.take().line);
    while (true) {
      Branch branch;
      branch.test = expressions_.tuple({.with_condition = false});
      branch.body = block({"elif", "else", "endif"});
      out->branches.push_back(std::move(branch));
      const std::string next = tokens_.take().text;
      if (next == "elif") continue;
      if (next == "else") out->body = block_to("endif");
      return out;
    }
  }

  Statements with() {
    Statements out = make(StatementKind::kWith, tokens_.take().line);
    while (!tokens_.is(TokenType::kBlockEnd)) {
      if (!out->expressions.empty()) tokens_.expect_operator(",");
      out->target_expressions.push_back(assign_target({}, false));
      tokens_.expect_operator("=");
      out->expressions.push_back(expressions_.expression());
    }
    out->body = block_to("endwith");
    return out;
  }

  void signature(MacroNode& node) {
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      if (!node.parameters.empty()) tokens_.expect_operator(",");
      const std::string name = plain_name();
      if (std::find(node.parameters.begin(), node.parameters.end(), name) !=
          node.parameters.end()) {
        tokens_.fail_here("duplicate parameter '" + name + "'");
      }
      node.parameters.push_back(name);
      if (tokens_.skip_operator("=")) {
        node.defaults.push_back(expressions_.expression());
      } else if (!node.defaults.empty()) {
        tokens_.fail_here("non-default argument follows default argument");
      }
    }
    tokens_.expect_operator(")");
  }

  Statements macro() {
    Statements out = make(StatementKind::kMacro, tokens_.take().line);
    out->macro = std::make_unique<MacroNode>();
    out->macro->name = plain_name();
    signature(*out->macro);
    out->macro->body = block_to("endmacro");
    return out;
  }

  Statements call_block() {
    Statements out = make(StatementKind::kCallBlock, tokens_.take().line);
    out->macro = std::make_unique<MacroNode>();
    if (tokens_.is_operator("(")) signature(*out->macro);
    ExprPtr call = expressions_.expression();
    if (call->kind != ExprKind::kCall) throw Failure{"expected call", out->line};
    out->expressions.push_back(std::move(call));
    out->macro->body = block_to("endcall");
    return out;
  }

  Statements filter_block() {
    Statements out = make(StatementKind::kFilterBlock, tokens_.take().line);
    out->expressions.push_back(expressions_.filters(nullptr, true));
    out->body = block_to("endfilter");
    return out;
  }

  Statements print() {
    Statements out = make(StatementKind::kOutput, tokens_.take().line);
    while (!tokens_.is(TokenType::kBlockEnd)) {
      if (!out->expressions.empty()) tokens_.expect_operator(",");
      out->expressions.push_back(expressions_.expression());
    }
    return out;
  }

  Statements generation() {
    Statements out = make(StatementKind::kGeneration, tokens_.take().line);
    out->macro = std::make_unique<MacroNode>();
    out->macro->body = block_to("endgeneration");
    return out;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::vector<std::pair<std::string, int>> open_tags_;
};

}  // namespace

Template parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace spillway::model::jinja
