#include "server/api/response_events.h"

#include <boost/json.hpp>
#include <ctime>

#include "server/api/logprobs.h"
#include "server/api/random_id.h"

namespace spillway::server {

namespace json = boost::json;

ResponseEvents::ResponseEvents(std::string id, json::object echo, bool logprobs,
                               std::shared_ptr<const ServedModel> model)
    : id_(std::move(id)),
      item_id_(random_id("msg_")),
      echo_(std::move(echo)),
      logprobs_wanted_(logprobs),
      model_(std::move(model)),
      created_(std::time(nullptr)),
      usage_(model_->cache_page_tokens()) {}

json::object ResponseEvents::event(const char* type) {
  return {{"type", type}, {"sequence_number", sequence_++}};
}

json::object ResponseEvents::place(const char* type) {
  json::object out = event(type);
  out["item_id"] = item_id_;
  out["output_index"] = 0;
  out["content_index"] = 0;
  return out;
}

json::object ResponseEvents::part() const {
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", json::array{}},
          {"logprobs", logprobs_}};
}

json::object ResponseEvents::item(const char* status) const {
  json::array content;
  if (!item_open_) content.push_back(part());
  return {{"type", "message"},
          {"id", item_id_},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

json::object ResponseEvents::object() const {
  json::object out{{"id", id_}, {"object", "response"}, {"created_at", created_}};
  for (const auto& member : echo_) out[member.key()] = member.value();
  out["status"] = status_;
  out["completed_at"] = nullptr;
  if (completed()) out["completed_at"] = std::time(nullptr);
  out["error"] = error_;
  out["incomplete_details"] = nullptr;
  if (!incomplete_reason_.empty()) {
    out["incomplete_details"] = json::object{{"reason", incomplete_reason_}};
  }
  json::array output;
  if (item_exists_ && !item_open_) {
    output.push_back(item(status_ == "completed" ? "completed" : "incomplete"));
  }
  out["output"] = std::move(output);
  out["usage"] = nullptr;
  if (completed()) out["usage"] = usage_.responses();
  return out;
}

void ResponseEvents::open(Events& events) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    json::object opening = event(type);
    opening["response"] = object();
    events.push_back(std::move(opening));
  }
}

void ResponseEvents::open_item(Events& events) {
  item_exists_ = item_open_ = true;
  json::object added = event("response.output_item.added");
  added["output_index"] = 0;
  added["item"] = item("in_progress");
  events.push_back(std::move(added));
  json::object part_added = place("response.content_part.added");
  part_added["part"] = json::object{{"type", "output_text"},
                                    {"text", ""},
                                    {"annotations", json::array{}},
                                    {"logprobs", json::array{}}};
  events.push_back(std::move(part_added));
}

void ResponseEvents::close_item(Events& events) {
  json::object text_done = place("response.output_text.done");
  text_done["text"] = text_;
  text_done["logprobs"] = logprobs_;
  events.push_back(std::move(text_done));
  json::object part_done = place("response.content_part.done");
  part_done["part"] = part();
  events.push_back(std::move(part_done));
  item_open_ = false;
  json::object item_done = event("response.output_item.done");
  item_done["output_index"] = 0;
  item_done["item"] =
      item(finish_ == scheduler::FinishReason::kLength ? "incomplete" : "completed");
  events.push_back(std::move(item_done));
}

void ResponseEvents::take(const scheduler::Output& output, Events& events) {
  if (ended()) return;
  if (output.waiting) {
    if (!report_progress_) return;
    json::object waiting = event("spillway:waiting");
    for (auto& member : waiting_object(*output.waiting)) {
      waiting[member.key()] = std::move(member.value());
    }
    events.push_back(std::move(waiting));
    return;
  }
  json::array logprobs;
  if (logprobs_wanted_) logprobs = chat_logprobs(*model_->tokenizer, output.tokens);
  if (report_progress_ && !output.tokens.empty()) {
    report_progress_ = false;
    json::object progress = event("spillway:prefill_progress");
    progress["prompt_tokens"] = output.usage.prompt_tokens;
    progress["cached_tokens"] = output.usage.cached_tokens;
    events.push_back(std::move(progress));
  }
  const bool says_something = !output.text.empty() || !logprobs.empty();
  if (!item_exists_ && (says_something || !output.tokens.empty())) open_item(events);
  if (says_something) {
    text_ += output.text;
    json::object delta = place("response.output_text.delta");
    delta["delta"] = output.text;
    delta["logprobs"] = logprobs;
    events.push_back(std::move(delta));
    for (json::value& entry : logprobs) logprobs_.push_back(std::move(entry));
  }
  if (output.finish) finish_ = output.finish;
  if (!output.done) return;
  usage_.add(output.usage);
  if (item_open_) close_item(events);
  const bool cut = steered_ || (finish_ == scheduler::FinishReason::kLength && item_exists_);
  status_ = cut ? "incomplete" : "completed";
  if (cut) incomplete_reason_ = steered_ ? "steered" : "max_output_tokens";
  json::object end = event(cut ? "response.incomplete" : "response.completed");
  end["response"] = object();
  events.push_back(std::move(end));
}

void ResponseEvents::fail(const ApiError& error, Events& events) {
  if (ended()) return;
  item_open_ = false;
  status_ = "failed";
  error_ = json::object{{"code", error.code.empty() ? "server_error" : error.code},
                        {"message", error.message}};
  json::object end = event("response.failed");
  end["response"] = object();
  events.push_back(std::move(end));
}

}  // namespace spillway::server
