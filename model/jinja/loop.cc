#include "model/jinja/loop.h"

#include "model/jinja/function.h"
#include "model/jinja/iterate.h"
#include "model/jinja/numbers.h"
#include "model/jinja/operators.h"
#include "model/jinja/parameters.h"

namespace spillway::model::jinja {

Loop::Loop(Run& run, Value iterable, Recurse recurse, int64_t depth)
    : iterable_(std::move(iterable)),
      items_(iterate(run, iterable_)),
      recurse_(std::move(recurse)),
      depth_(depth) {}

bool Loop::advance(Run& run) {
  std::optional<Value> item = std::move(after_);
  after_.reset();
  if (!item) item = items_->next(run);
  if (!item) return false;
  ++index_;
  before_ = std::move(current_);
  current_ = std::move(item);
  return true;
}

const std::optional<Value>& Loop::peek(Run& run) {
  if (!after_ && items_ != nullptr) after_ = items_->next(run);
  return after_;
}

std::optional<int64_t> Loop::length(Run& run) {
  if (length_) return length_;
  length_ = length_of(run, iterable_);
  if (length_) return length_;
  // A generator is run to its end to be counted.
  const Value rest = run.list(to_items(run, iterable_));
  items_ = iterate(run, rest);
  const auto count = static_cast<int64_t>(rest.items().size());
  return length_ = count + index_ + 1 + (after_ ? 1 : 0);
}

std::string Loop::repr(Run& run) {
  return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(*length(run)) + ">";
}

Value Loop::call(Run& run, Arguments arguments) {
  const Parameters p(run, "loop", arguments, {"iterable"}, 1);
  if (!recurse_) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  return recurse_(run, p.at(0), depth_ + 1);
}

Value Loop::cycle(const Arguments& arguments) const {
  const std::vector<Value>& values = arguments.positional;
  if (values.empty()) fail("no items for cycling given");
  return values[static_cast<size_t>(modulo(index_, static_cast<int64_t>(values.size())))];
}

Value Loop::changed(Run& run, const Arguments& arguments) {
  bool same = last_changed_.has_value() && last_changed_->size() == arguments.positional.size();
  for (size_t i = 0; same && i < last_changed_->size(); ++i) {
    same = equal(run, (*last_changed_)[i], arguments.positional[i]);
  }
  if (!same) last_changed_ = arguments.positional;
  return Value::boolean(!same);
}

std::optional<Value> Loop::attribute(Run& run, std::string_view name) {
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "index0") return Value::integer(index_);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(!peek(run).has_value());
  if (name == "length") return Value::integer(*length(run));
  if (name == "revindex") return Value::integer(*length(run) - index_);
  if (name == "revindex0") return Value::integer(*length(run) - index_ - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") {
    return index_ > 0 && before_ ? *before_ : run.undefined("there is no previous item");
  }
  if (name == "nextitem") return peek(run) ? *after_ : run.undefined("there is no next item");
  if (name != "cycle" && name != "changed") return std::nullopt;
  const bool cycles = name == "cycle";
  const auto self = shared_from_this();
  return run.object(std::make_shared<Function>(
      std::string(name), [self, cycles](Run& run, const Arguments& arguments) {
        return cycles ? self->cycle(arguments) : self->changed(run, arguments);
      }));
}

void Loop::release() {
  iterable_ = Value();
  items_ = nullptr;
  recurse_ = nullptr;
  before_.reset();
  current_.reset();
  after_.reset();
  last_changed_.reset();
}

}  // namespace spillway::model::jinja
