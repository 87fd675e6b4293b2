#include "model/jinja/iterate.h"

#include <algorithm>

#include "model/jinja/printing.h"
#include "model/jinja/unicode.h"

namespace spillway::model::jinja {
namespace {

// Items by number, forwards or backwards, out of a value that does not change.
class IndexedIterator final : public Iterator {
 public:
  IndexedIterator(Value source, int64_t count, bool backwards)
      : source_(std::move(source)), count_(count), backwards_(backwards) {}

  std::optional<Value> next(Run& run) override {
    if (at_ >= count_) return std::nullopt;
    run.step();
    const int64_t index = backwards_ ? count_ - 1 - at_ : at_;
    ++at_;
    return item(static_cast<size_t>(index));
  }
  uint32_t depth() const override { return source_.depth() + 1; }
  std::string_view type_name() const override {
    if (source_.is(Kind::kList)) return backwards_ ? "list_reverseiterator" : "list_iterator";
    return backwards_ ? "reversed" : "iterator";
  }

 private:
  Value item(size_t index) const {
    switch (source_.kind()) {
      case Kind::kDict:
        return source_.as_dict().entries[index].first;
      case Kind::kRange:
        return source_.as_range().at(static_cast<int64_t>(index));
      case Kind::kView:
        return source_.as_view().at(index);
      default:
        return source_.items()[index];
    }
  }

  Value source_;
  int64_t count_;
  int64_t at_ = 0;
  bool backwards_;
};

class CharacterIterator final : public Iterator {
 public:
  explicit CharacterIterator(Value source) : source_(std::move(source)) {}

  std::optional<Value> next(Run& run) override {
    const std::string& text = source_.text();
    if (at_ >= text.size()) return std::nullopt;
    run.step();
    const size_t begin = at_;
    next_point(text, at_);
    return run.string(text.substr(begin, at_ - begin));
  }
  std::string_view type_name() const override { return "str_iterator"; }

 private:
  Value source_;
  size_t at_ = 0;
};

class EmptyIterator final : public Iterator {
 public:
  std::optional<Value> next(Run&) override { return std::nullopt; }
};

class FunctionIterator final : public Iterator {
 public:
  FunctionIterator(uint32_t depth, std::function<std::optional<Value>(Run&)> source)
      : source_(std::move(source)), depth_(depth) {}

  // A generator that failed or ended stays ended.
  std::optional<Value> next(Run& run) override {
    if (!source_) return std::nullopt;
    const Nested nested(run);
    run.step();
    auto source = std::move(source_);
    source_ = nullptr;
    std::optional<Value> item = source(run);
    if (item) source_ = std::move(source);
    return item;
  }
  uint32_t depth() const override { return depth_; }

 private:
  std::function<std::optional<Value>(Run&)> source_;
  uint32_t depth_;
};

std::optional<int64_t> indexed_count(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.as_dict().entries.size());
    case Kind::kView:
      return static_cast<int64_t>(value.as_view().dict.as_dict().entries.size());
    case Kind::kRange:
      return value.as_range().size();
    default:
      return std::nullopt;
  }
}

}  // namespace

bool iterable(const Value& value) {
  return indexed_count(value) || value.is_string() || value.is_undefined() ||
         value.is(Kind::kIterator);
}

std::shared_ptr<Iterator> iterate(Run& run, const Value& value) {
  run.step();
  if (const auto count = indexed_count(value)) {
    return std::make_shared<IndexedIterator>(value, *count, false);
  }
  if (value.is_string()) return std::make_shared<CharacterIterator>(value);
  if (value.is_undefined()) return std::make_shared<EmptyIterator>();
  if (value.is(Kind::kIterator)) {
    return {std::make_shared<Value>(value), &value.as_iterator()};
  }
  fail("'" + type_name(value) + "' object is not iterable");
}

std::optional<int64_t> length_of(Run& run, const Value& value) {
  if (const auto count = indexed_count(value)) return count;
  if (value.is_string()) return value.as_string().characters;
  if (value.is_undefined()) return 0;
  if (value.is(Kind::kObject)) return value.as_object().length(run);
  return std::nullopt;
}

std::vector<Value> to_items(Run& run, const Value& value) {
  if (value.is_sequence()) {
    run.step(static_cast<int64_t>(value.items().size()));
    return value.items();
  }
  const auto source = iterate(run, value);
  std::vector<Value> items;
  while (std::optional<Value> item = source->next(run)) {
    run.charge(sizeof(Value));
    items.push_back(std::move(*item));
  }
  return items;
}

Value generate(Run& run, uint32_t depth, std::function<std::optional<Value>(Run&)> source) {
  return run.iterator(std::make_shared<FunctionIterator>(depth + 1, std::move(source)));
}

std::optional<Value> reversed(Run& run, const Value& value) {
  if (const auto count = indexed_count(value)) {
    return run.iterator(std::make_shared<IndexedIterator>(value, *count, true));
  }
  if (value.is_string()) {
    std::vector<Value> items = to_items(run, value);
    std::reverse(items.begin(), items.end());
    const Value list = run.list(std::move(items));
    return run.iterator(
        std::make_shared<IndexedIterator>(list, value.as_string().characters, false));
  }
  if (value.is_undefined()) {  // has no items, yet what walks it backwards is true, as any iterator
    return run.iterator(std::make_shared<IndexedIterator>(value, 0, true));
  }
  return std::nullopt;
}

}  // namespace spillway::model::jinja
