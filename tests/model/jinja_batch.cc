// Renders many templates in one process, for comparing with jinja2: each input line is a JSON
// object
// {"template": ..., "context": {...}}, each output line {"ok": ..., "text": ...}. The clock stands
// still at 2024-07-26 14:05:06.000789.
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <ctime>
#include <iostream>
#include <string>

#include "model/chat_template.h"
#include "model/jinja/globals.h"
#include "server/json_to_jinja.h"

namespace {

using spillway::Result;
using spillway::model::ChatTemplate;
using spillway::model::jinja::Entry;
using spillway::model::jinja::Value;

Value with_clock(const Value& context) {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 14;
  now.tm_min = 5;
  now.tm_sec = 6;
  now.tm_wday = 5;
  now.tm_yday = 207;
  std::vector<Entry> entries = context.as_dict().entries;
  entries.emplace_back(Value::string("strftime_now"),
                       spillway::model::jinja::fixed_clock(now, 789));
  return Value::dict(std::move(entries));
}

Result<std::string> render(const Value& job) {
  const auto parsed = ChatTemplate::parse(job.as_dict().find("template")->text());
  if (!parsed) return parsed.error();
  return parsed->render(with_clock(*job.as_dict().find("context")));
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const auto job = spillway::server::json_to_jinja(line);
    if (!job) {
      std::cerr << "jinja_batch: " << job.error().message << "\n";
      return 2;
    }
    const Result<std::string> text = render(*job);
    boost::json::object answer;
    answer["ok"] = text.has_value();
    answer["text"] = text ? *text : text.error().message;
    std::cout << boost::json::serialize(answer) << "\n";
  }
  return 0;
}
