// Any bytes as a chat template, rendered over a small fixed chat: it may be refused, and nothing
// else may happen. The bounds are small here so that no input takes long.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/jinja/evaluator.h"
#include "model/jinja/globals.h"
#include "model/jinja/parser.h"
#include "model/jinja/resolver.h"
#include "model/jinja/unicode.h"
#include "runtime/check.h"

namespace {

using namespace spillway::model::jinja;

Value text(const char* utf8) { return Value::string(utf8); }

Value chat() {
  const Value call =
      Value::dict({{text("name"), text("f")},
                   {text("arguments"),
                    Value::dict({{text("x"), Value::floating(1.5)}, {text("n"), Value::none()}})}});
  const Value user = Value::dict({{text("role"), text("user")}, {text("content"), text("Hi é\n")}});
  const Value assistant =
      Value::dict({{text("role"), text("assistant")},
                   {text("content"), Value::none()},
                   {text("tool_calls"), Value::list({Value::dict({{text("function"), call}})})}});
  return Value::dict({{text("messages"), Value::list({user, assistant, user})},
                      {text("tools"), Value::list({call})},
                      {text("add_generation_prompt"), Value::boolean(true)},
                      {text("bos_token"), text("<s>")},
                      {text("n"), Value::integer(3)},
                      {text("big"), Value::big_integer("123456789012345678901")},
                      {text("strftime_now"), fixed_clock(std::tm{})}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  if (!valid_utf8(source)) return 0;
  static const Value kContext = chat();
  Limits limits;
  limits.steps = 20'000;
  limits.bytes = 4 << 20;
  limits.output_bytes = 1 << 20;
  Run run(limits);
  try {
    Template parsed = parse_template(source);
    resolve(parsed);
    CHECK(valid_utf8(Evaluator(run, kContext).render(parsed)));
  } catch (const Failure& failure) {
    CHECK(!failure.message.empty() || source.find("raise_exception") != source.npos);
  }
  return 0;
}
