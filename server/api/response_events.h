// The events of one response, in the order that Open Responses (2026-04-24) and OpenAI's clients
// expect:
//
//   created, in_progress, output_item.added, content_part.added, output_text.delta *,
//   output_text.done, content_part.done, output_item.done, completed | incomplete
//
// or, at any place, failed. sequence_number counts from 0. The same object gives the final JSON.
// Not thread safe.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/request.h"
#include "server/api/api_error.h"
#include "server/api/served_model.h"
#include "server/api/usage.h"

namespace spillway::server {

class ResponseEvents {
 public:
  // `echo` holds the request's own fields as the response object repeats them (response_echo).
  ResponseEvents(std::string id, boost::json::object echo, bool logprobs,
                 std::shared_ptr<const ServedModel> model);

  using Events = std::vector<boost::json::object>;

  // created and in_progress.
  void open(Events& events);
  // What one output of the engine gives; the last one completes the response.
  void take(const scheduler::Output& output, Events& events);
  // Sends spillway:waiting now and then while nothing has come, and spillway:prefill_progress once,
  // with the counts of the prompt, before the first text.
  void report_progress() { report_progress_ = true; }
  // The output that ends this response next does so because new input steers it: incomplete.
  void mark_steered() { steered_ = true; }
  // For an event about this response that is made elsewhere.
  uint64_t take_sequence() { return sequence_++; }
  // The response cannot go on.
  void fail(const ApiError& error, Events& events);

  bool ended() const { return status_ != "in_progress"; }
  bool completed() const { return status_ == "completed" || status_ == "incomplete"; }
  const std::string& id() const { return id_; }
  const std::string& text() const { return text_; }
  // The response object as it stands.
  boost::json::object object() const;

 private:
  boost::json::object event(const char* type);
  boost::json::object place(const char* type);  // with item, output and content index
  boost::json::object part() const;
  boost::json::object item(const char* status) const;
  void open_item(Events& events);
  void close_item(Events& events);

  std::string id_;
  std::string item_id_;
  boost::json::object echo_;
  bool logprobs_wanted_;
  std::shared_ptr<const ServedModel> model_;
  int64_t created_;
  uint64_t sequence_ = 0;
  std::string status_ = "in_progress";
  std::string incomplete_reason_;
  boost::json::value error_;
  bool report_progress_ = false;
  bool steered_ = false;
  bool item_open_ = false;
  bool item_exists_ = false;
  std::string text_;
  boost::json::array logprobs_;
  std::optional<scheduler::FinishReason> finish_;
  UsageSum usage_;
};

}  // namespace spillway::server
