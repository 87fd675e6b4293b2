// The `loop` variable of a for.
#pragma once

#include <functional>
#include <memory>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

class Loop final : public Object, public Releasable, public std::enable_shared_from_this<Loop> {
 public:
  // Renders the loop's body over other items: what calling `loop` does in a recursive one.
  using Recurse = std::function<Value(Run&, const Value& iterable, int64_t depth)>;

  Loop(Run& run, Value iterable, Recurse recurse, int64_t depth);

  // Moves to the next item; false at the end.
  bool advance(Run& run);
  const Value& current() const { return *current_; }

  uint32_t depth() const override { return 1; }
  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr(Run& run) override;
  bool callable() const override { return true; }
  Value call(Run& run, Arguments arguments) override;
  std::optional<Value> attribute(Run& run, std::string_view name) override;
  std::optional<int64_t> length(Run& run) override;
  void release() override;

 private:
  // The item after this one, fetched early.
  const std::optional<Value>& peek(Run& run);
  Value cycle(const Arguments& arguments) const;
  Value changed(Run& run, const Arguments& arguments);

  Value iterable_;
  std::shared_ptr<Iterator> items_;
  Recurse recurse_;
  int64_t depth_;
  int64_t index_ = -1;
  std::optional<int64_t> length_;
  std::optional<Value> before_;
  std::optional<Value> current_;
  std::optional<Value> after_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace spillway::model::jinja
