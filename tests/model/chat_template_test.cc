// Chat templates: what they print, what they refuse, and that nothing they do goes on for ever.
// (jinja_real_templates.py and jinja_random.py compare the interpreter with jinja2 itself.)
#include "model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "model/jinja/globals.h"

namespace spillway::model {
namespace {

using jinja::Value;
using testing::HasSubstr;

Value text(const char* utf8) { return Value::string(utf8); }

Value empty_context() { return Value::dict({}); }

Value message(const char* role, const char* content) {
  return Value::dict({{text("role"), text(role)}, {text("content"), text(content)}});
}

Result<std::string> render(std::string_view source, const Value& context = empty_context()) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) return parsed.error();
  return parsed->render(context);
}

std::string rendered(std::string_view source, const Value& context = empty_context()) {
  const auto result = render(source, context);
  EXPECT_TRUE(result.has_value()) << source << ": " << (result ? "" : result.error().message);
  return result ? *result : "";
}

std::string refused(std::string_view source, const Value& context = empty_context()) {
  const auto result = render(source, context);
  EXPECT_FALSE(result.has_value()) << source << " gave " << (result ? *result : "");
  return result ? "" : result.error().message;
}

TEST(ChatTemplate, default_template_is_chatml) {
  const Value context = Value::dict(
      {{text("messages"), Value::list({message("system", "Be brief."), message("user", "Hi")})},
       {text("add_generation_prompt"), Value::boolean(true)}});
  EXPECT_EQ(rendered(ChatTemplate::fallback_source(), context),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, errors_name_line_and_cause) {
  EXPECT_EQ(refused("a\n{{ x.y }}"), "chat template, line 2: 'x' is undefined");
  EXPECT_EQ(refused("a\n\n{% if %}{% endif %}"),
            "chat template, line 3: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(refused("{% for x in [1] %}\n{{ 1 + 'a' }}{% endfor %}"),
            "chat template, line 2: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(refused("\n{{ raise_exception('Roles must alternate.') }}"),
            "chat template, line 2: Roles must alternate.");
  EXPECT_THAT(refused("a\n{% for x in y %}"), HasSubstr("line 2: Unexpected end of template."));
  EXPECT_EQ(refused("{% macro m() %}\n{{ 1 }}{% endmacro %}\n\n{{ m() + 1 }}"),
            "chat template, line 4: can only concatenate str (not \"int\") to str");
}

TEST(ChatTemplate, tags_that_reach_out_are_refused) {  // case A10
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"}) {
    EXPECT_THAT(refused("{% " + std::string(tag) + " %}"), HasSubstr("is not supported"));
  }
  EXPECT_EQ(rendered("{{ ''.__class__ is defined }}{{ messages.__init__ }}",
                     Value::dict({{text("messages"), Value::list({})}})),
            "False");
}

TEST(ChatTemplate, values_cannot_be_changed) {
  const Value context = Value::dict(
      {{text("list"), Value::list({Value::integer(1)})}, {text("dict"), Value::dict({})}});
  for (const char* change : {"list.append(2)", "list.pop()", "list.sort()", "dict.update(a=1)",
                             "dict.pop('a')", "dict.setdefault('a', 1)"}) {
    EXPECT_THAT(refused("{{ " + std::string(change) + " }}", context), HasSubstr("is unsafe"))
        << change;
  }
}

// What would run for ever, or fill memory, ends with an error that names the bound.
TEST(ChatTemplate, endless_work_is_stopped) {  // case A10
  const char* const kHostile[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ 'x' * 10**9 }}",
      "{{ ('x' * 10**6) * 10**6 }}",
      "{{ [1] * 10**12 }}",
      "{{ 'a'.center(10**12) }}",
      "{{ '%1000000d' % 1 * 10**5 }}",
      "{{ '%*d' % (10**15, 1) }}",
      "{{ '{:>1000000000}'.format('x') }}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x }}",
      "{% set a = namespace(x=[]) %}{% set b = namespace(x=[]) %}{% for i in range(60) %}"
      "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x | tojson }}",
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
      "{% set ns.x = ns.x | map('upper') %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ range(10**12) }}",
      "{{ 2 ** 100000 }}",
      "{{ 9223372036854775807 + 1 }}",
      "{% for i in range(100000) %}{{ 'abcdefghijklmnopqrstuvwxyz' * 1000 }}{% endfor %}",
      "{{ ('a' * 1000000) | replace('', 'b' * 1000) }}",
      "{{ 'x' | indent(10**10, true) }}",
      "{{ [1] | tojson(indent=10**10) }}",
      "{{ [1] | batch(10**12, 0) | list }}",
      "{{ [1] | slice(10**9) | list }}",
  };
  for (const char* source : kHostile) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NE(refused(source), "") << source;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << source;
  }
}

TEST(ChatTemplate, deep_nesting_is_refused_and_not_a_crash) {  // case A10
  const std::string open(100000, '(');
  EXPECT_THAT(refused("{{ " + open), HasSubstr("levels deep"));
  std::string sum = "1";
  for (int i = 0; i < 100000; ++i) sum += " + 1";
  EXPECT_THAT(refused("{{ " + sum + " }}"), HasSubstr("levels"));
  std::string ifs;
  for (int i = 0; i < 100000; ++i) ifs += "{% if 1 %}";
  EXPECT_THAT(refused(ifs), HasSubstr("levels deep"));
  std::string nots = "{{ ";
  for (int i = 0; i < 100000; ++i) nots += "not ";
  EXPECT_THAT(refused(nots + "1 }}"), HasSubstr("levels deep"));
}

TEST(ChatTemplate, search_is_linear_in_hostile_text) {  // case A10
  EXPECT_EQ(rendered("{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}"
                     "{{ b in a }} {{ a.find(b) }} {{ a.rfind('b' ~ b) }} {{ a.count(b) }} "
                     "{{ a.split(b) | length }} {{ a.replace(b, '') | length }}"),
            "False -1 -1 0 1 4000000");
}

TEST(ChatTemplate, a_ring_of_references_is_freed) {
  // Leaks here are found by the address sanitizer's run.
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% set ns.me = ns %}"
                     "{% macro m() %}{% set ns.f = m %}{{ caller() }}{% endmacro %}"
                     "{% call m() %}{% for x in [1, 2] %}{% set ns.l = loop %}{% set y = loop %}"
                     "{{ loop.changed(loop) }}{% endfor %}{% endcall %}"),
            "TrueFalse");
}

TEST(ChatTemplate, integers_past_64_bits_are_carried_exactly) {
  const Value context =
      Value::dict({{text("n"), Value::big_integer("123456789012345678901234567890")}});
  EXPECT_EQ(rendered("{{ n }} {{ {'n': n} | tojson }} {{ n > 5 }}", context),
            "123456789012345678901234567890 {\"n\": 123456789012345678901234567890} True");
  EXPECT_THAT(refused("{{ n + 1 }}", context), HasSubstr("overflow"));
}

TEST(ChatTemplate, the_clock_can_be_given) {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  const Value context = Value::dict({{text("strftime_now"), jinja::fixed_clock(now)}});
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}", context), "26 Jul 2024");
  EXPECT_EQ(rendered("{{ strftime_now('%Y') | length }}"), "4");
}

TEST(ChatTemplate, a_template_renders_the_same_twice) {
  const auto parsed = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}"
      "{{ ns.n }}{{ x }}{% set x = 5 %}");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed->render(empty_context()), "1");
  EXPECT_EQ(*parsed->render(empty_context()), "1");
}

TEST(ChatTemplate, what_a_dict_gives_looks_things_up_as_the_dict_does) {
  const Value context = Value::dict({{text("d"), Value::dict({{text("x"), Value::integer(1)}})}});
  EXPECT_EQ(rendered("{{ 'x' in d.keys() }}{{ 'y' in d.keys() }}", context), "TrueFalse");
  EXPECT_EQ(rendered("{{ ('x', 1) in d.items() }}{{ ('x', 2) in d.items() }}", context),
            "TrueFalse");
  EXPECT_EQ(rendered("{{ 'x' in d.items() }}{{ 1 in d.values() }}", context), "FalseTrue");
  EXPECT_THAT(refused("{{ {} in d.keys() }}", context), HasSubstr("unhashable type: 'dict'"));
  EXPECT_THAT(refused("{{ ([], 1) in d.items() }}", context), HasSubstr("unhashable type: 'list'"));
}

TEST(ChatTemplate, an_object_prints_as_long_as_in_python) {
  const Value context = Value::dict({{text("d"), Value::dict({})}});
  EXPECT_EQ(rendered("{{ d.items|string|length }}", context), "56");
  EXPECT_EQ(rendered("{{ [d.items]|wordcount }}", context), "9");
}

TEST(ChatTemplate, whatever_walks_backwards_is_true_even_when_empty) {
  EXPECT_EQ(rendered("{{ 'a' if nothing|reverse else 'b' }}{{ nothing|reverse|list }}"), "a[]");
  EXPECT_EQ(rendered("{{ 'a' if []|reverse else 'b' }}{{ 'a' if ''|reverse else 'b' }}"), "ab");
}

TEST(ChatTemplate, invalid_utf8_and_wrong_contexts_are_errors) {
  EXPECT_THAT(refused("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(refused("x", Value::list({})), HasSubstr("mapping"));
}

}  // namespace
}  // namespace spillway::model
