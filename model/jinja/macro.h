// A macro, or the `caller` of a call block, as a value.
#pragma once

#include <memory>

#include "model/jinja/evaluator.h"

namespace spillway::model::jinja {

class Macro final : public Object {
 public:
  // REQUIRES: the evaluator and the node outlive it, as they do within a run.
  Macro(Evaluator& evaluator, const MacroNode& node, std::shared_ptr<Activation> around)
      : evaluator_(evaluator), node_(node), around_(std::move(around)) {}

  std::string_view type_name() const override { return "Macro"; }
  std::string repr(Run& run) override;
  bool callable() const override { return true; }
  Value call(Run& run, Arguments arguments) override;
  std::optional<Value> attribute(Run& run, std::string_view name) override;

 private:
  Evaluator& evaluator_;
  const MacroNode& node_;
  std::shared_ptr<Activation> around_;
};

}  // namespace spillway::model::jinja
