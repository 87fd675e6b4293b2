// A built-in function as a value.
#pragma once

#include <functional>
#include <string>

#include "model/jinja/printing.h"
#include "model/jinja/run.h"

namespace spillway::model::jinja {

class Function final : public Object {
 public:
  using Body = std::function<Value(Run&, const Arguments&)>;

  // `depth` is that of the values the body holds.
  Function(std::string name, Body body, uint32_t depth = 0)
      : name_(std::move(name)), body_(std::move(body)), depth_(depth) {}

  uint32_t depth() const override { return depth_ + 1; }
  std::string_view type_name() const override { return "function"; }
  std::string repr(Run&) override { return "<function " + name_ + std::string(kSomeAddress) + ">"; }
  bool callable() const override { return true; }
  Value call(Run& run, Arguments arguments) override { return body_(run, arguments); }

 private:
  std::string name_;
  Body body_;
  uint32_t depth_;
};

}  // namespace spillway::model::jinja
