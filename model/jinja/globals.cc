#include "model/jinja/globals.h"

#include <chrono>
#include <cstdio>
#include <map>

#include "model/jinja/function.h"
#include "model/jinja/iterate.h"
#include "model/jinja/numbers.h"
#include "model/jinja/parameters.h"
#include "model/jinja/printing.h"
#include "model/jinja/text.h"

namespace spillway::model::jinja {
namespace {

constexpr int64_t kRangeMax = 100000;  // jinja2's sandbox bound

Value range(Run& run, const Arguments& arguments) {
  const Parameters p(run, "range", arguments, {"", "", ""}, 1);
  int64_t start = 0;
  int64_t stop = p.integer(0, 0);
  if (p.has(1)) {
    start = stop;
    stop = p.integer(1, 0);
  }
  const int64_t step = p.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const Value value = Value::range(start, stop, step);
  if (value.as_range().size() > kRangeMax) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
         std::to_string(kRangeMax) + ").");
  }
  return value;
}

// dict(mapping or pairs, **more).
std::vector<Entry> entries_of(Run& run, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail("dict expected at most 1 argument, got " + std::to_string(arguments.positional.size()));
  }
  std::vector<Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Kind::kDict)) {
      entries = from.as_dict().entries;
    } else {
      for (const Value& pair : to_items(run, from)) {
        std::vector<Value> parts = to_items(run, pair);
        if (parts.size() != 2) {
          fail("dictionary update sequence element has length " + std::to_string(parts.size()) +
               "; 2 is required");
        }
        entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.keyword) {
    entries.emplace_back(run.string(name), value);
  }
  return entries;
}

Value dict(Run& run, const Arguments& arguments) { return run.dict(entries_of(run, arguments)); }

Value name_space(Run& run, const Arguments& arguments) {
  auto value = std::make_shared<Namespace>();
  const Value attributes = run.dict(entries_of(run, arguments));
  for (const auto& [key, held] : attributes.as_dict().entries) {
    if (key.is_string()) value->set(key.text(), held);
  }
  run.own(value);
  return Value::name_space(std::move(value));
}

class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}

  uint32_t depth() const override {
    uint32_t depth = 0;
    for (const Value& item : items_) depth = std::max(depth, item.depth());
    return depth + 1;
  }
  std::string_view type_name() const override { return "Cycler"; }
  std::string repr(Run&) override {
    return "<jinja2.utils.Cycler object" + std::string(kSomeAddress) + ">";
  }

  std::optional<Value> attribute(Run& run, std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name == "pos") return Value::integer(static_cast<int64_t>(at_));
    if (name == "items") return run.tuple(items_);
    if (name != "next" && name != "reset") return std::nullopt;
    const auto self = shared_from_this();
    const bool resets = name == "reset";
    return run.object(std::make_shared<Function>(
        std::string(name),
        [self, resets](Run& run, const Arguments& arguments) {
          const Parameters p(run, "cycler", arguments, {});
          const size_t at = self->at_;
          self->at_ = resets ? 0 : (at + 1) % self->items_.size();
          return resets ? Value::none() : self->items_[at];
        },
        depth()));
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

Value cycler(Run& run, const Arguments& arguments) {
  if (!arguments.keyword.empty()) fail("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return run.object(std::make_shared<Cycler>(arguments.positional));
}

class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}

  uint32_t depth() const override { return separator_.depth() + 1; }
  std::string_view type_name() const override { return "Joiner"; }
  std::string repr(Run&) override {
    return "<jinja2.utils.Joiner object" + std::string(kSomeAddress) + ">";
  }
  bool callable() const override { return true; }
  Value call(Run& run, Arguments arguments) override {
    const Parameters p(run, "joiner", arguments, {});
    if (used_) return separator_;
    used_ = true;
    return Value::string("");
  }
  std::optional<Value> attribute(Run&, std::string_view name) override {
    if (name == "sep") return separator_;
    if (name == "used") return Value::boolean(used_);
    return std::nullopt;
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value joiner(Run& run, const Arguments& arguments) {
  const Parameters p(run, "joiner", arguments, {"sep"});
  return run.object(std::make_shared<Joiner>(p.value(0, Value::string(", "))));
}

Value raise_exception(Run& run, const Arguments& arguments) {
  const Parameters p(run, "raise_exception", arguments, {"message"}, 1);
  fail(to_text(run, p.at(0)));
}

// C's strftime, with the three directives that Python answers itself: a naive time has no zone.
Value format_time(Run& run, const std::string& format, const std::tm& now, int microsecond) {
  if (format.size() > 1000) fail("strftime_now: a format has at most 1000 bytes");
  std::string prepared;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == 'f') {
      char digits[16];
      std::snprintf(digits, sizeof digits, "%06d", microsecond);
      prepared += digits;
    } else if (next == '%') {
      prepared += "%%";
    } else if (next != 'z' && next != 'Z') {
      prepared += format[i];
      continue;
    }
    ++i;
  }
  if (prepared.empty()) return run.string("");
  char buffer[8192];
  const size_t size = std::strftime(buffer, sizeof buffer, prepared.c_str(), &now);
  return run.string(std::string(buffer, size));
}

Value clock_time(Run& run, const Arguments& arguments) {
  const Parameters p(run, "strftime_now", arguments, {"format"}, 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = static_cast<std::time_t>(micros / 1000000);
  std::tm local{};
  localtime_r(&seconds, &local);
  return format_time(run, p.text(0, ""), local, static_cast<int>(micros % 1000000));
}

Value lipsum(Run&, const Arguments&) {
  fail("lipsum() is not supported in chat templates: a prompt must be repeatable");
}

Value function(const char* name, Value (*body)(Run&, const Arguments&)) {
  return Value::object(std::make_shared<Function>(name, body));
}

}  // namespace

Value find_global(std::string_view name) {
  static const std::map<std::string, Value, std::less<>> kGlobals = {
      {"cycler", function("cycler", cycler)},
      {"dict", function("dict", dict)},
      {"joiner", function("joiner", joiner)},
      {"lipsum", function("lipsum", lipsum)},
      {"namespace", function("namespace", name_space)},
      {"raise_exception", function("raise_exception", raise_exception)},
      {"range", function("range", range)},
      {"strftime_now", function("strftime_now", clock_time)},
  };
  const auto found = kGlobals.find(name);
  return found == kGlobals.end() ? Value() : found->second;
}

Value fixed_clock(const std::tm& now, int microsecond) {
  return Value::object(std::make_shared<Function>(
      "strftime_now", [now, microsecond](Run& run, const Arguments& arguments) {
        const Parameters p(run, "strftime_now", arguments, {"format"}, 1);
        return format_time(run, p.text(0, ""), now, microsecond);
      }));
}

}  // namespace spillway::model::jinja
