// A parsed template. The parser fills the shape, the resolver (symbols.h) the slots; nothing
// changes afterwards, so any number of runs may share one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace spillway::model::jinja {

struct Filter;
struct Test;

// Where a variable lives: `hops` functions outward, then a place in that function's activation.
// A function is the template itself, a macro, a call block, a recursive loop's body, or a loop's
// filter.
struct Slot {
  uint16_t hops = 0;
  uint16_t index = 0;
};

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kNot,
  kNegate,
  kPlus,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kAnd,
  kOr,
  kConcat,
  kCompare,
  kCondition,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNamespaceRef,
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// One expression. `items` by kind: operands; of kDict key, value, key, value...; of kCondition
// test, then, else (may be null); of kSlice start, stop, step (each may be null); of kAttribute,
// kItem, kCall, kFilter, kTest the object first (of a filter block's kFilter it is null), then an
// index or the positional arguments.
struct Expr {
  ExprKind kind;
  int line = 0;
  int depth = 1;
  std::string name;  // of names, attributes, filters, tests; for kNamespaceRef the attribute
  std::string base;  // of kNamespaceRef: the namespace's name
  Value constant;
  std::vector<ExprPtr> items;
  std::vector<CompareOp> ops;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr rest;          // *args
  ExprPtr keyword_rest;  // **kwargs
  Slot slot;
  const Filter* filter = nullptr;  // null: unknown, and reported when it is called
  const Test* test = nullptr;
};

// What entering a scope does to one of its slots, in order.
struct LoadStep {
  enum class From : uint8_t { kContext, kAlias, kNothing };
  From from;
  uint16_t target;
  Slot alias;
  std::string name;
};

struct Scope {
  std::vector<LoadStep> enter;
  std::vector<uint16_t> leave;  // slots that become unset again
};

// What an assignment fills: one slot, a namespace's attribute, or the parts of a tuple.
struct Target {
  enum class Kind : uint8_t { kSlot, kNamespace, kTuple };
  Kind kind = Kind::kSlot;
  Slot slot;
  std::string attribute;
  std::vector<Target> parts;
  int line = 0;
};

enum class StatementKind : uint8_t {
  kOutput,
  kAssign,
  kAssignBlock,
  kFor,
  kIf,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
  kGeneration,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// Of a macro, a call block or a generation block.
struct MacroNode {
  std::string name;  // empty: a call block's
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  uint16_t slots = 0;
  std::vector<uint16_t> parameter_slots;  // where each argument goes, in this order
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
  bool explicit_caller = false;
  Scope scope;
};

struct Branch {
  ExprPtr test;
  Body body;
};

struct ForNode {
  ExprPtr target;
  ExprPtr iterable;
  ExprPtr test;
  Body body;
  Body otherwise;
  bool recursive = false;
  bool has_loop = false;  // the body looks at `loop`
  Target bound;           // target, in the body's scope
  Target filtered;        // target, in the filter's function
  uint16_t loop_slot = 0;
  uint16_t filter_slots = 0;  // size of the filter's activation
  uint16_t body_slots = 0;    // size of a recursive body's activation
  Scope scope;
  Scope filter_scope;
  Scope otherwise_scope;
};

// One statement. `expressions`: of kOutput what is printed (constants are template text), of
// kAssign the value, of kAssignBlock and kFilterBlock the filter (or null), of kCallBlock the
// call, of kWith the values.
struct Statement {
  StatementKind kind;
  int line = 0;
  std::vector<ExprPtr> expressions;
  std::vector<ExprPtr> target_expressions;
  std::vector<Target> targets;
  std::vector<Branch> branches;  // of kIf
  Body body;                     // of kIf: else
  std::unique_ptr<ForNode> loop;
  std::unique_ptr<MacroNode> macro;
  Slot slot;  // of kMacro: where it is stored
  Scope scope;
};

struct Template {
  Body body;
  uint16_t slots = 0;
  Scope scope;
};

}  // namespace spillway::model::jinja
