// From messages to prompt tokens, by the model's template.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "model/token.h"
#include "scheduler/request.h"
#include "server/api/api_error.h"
#include "server/api/breakpoints.h"
#include "server/api/served_model.h"

namespace spillway::server {

struct ChatPrompt {
  boost::json::array messages;           // normalized (messages.h)
  std::vector<MarkedPlace> breakpoints;  // in them, in order
  boost::json::value tools;              // list, or null for none
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  boost::json::object template_kwargs;
};

// Reads the prompt's fields of a chat request: messages, tools, tool_choice,
// add_generation_prompt, continue_final_message, chat_template_kwargs.
ApiResult<ChatPrompt> read_chat_prompt(const boost::json::object& body, const ServedModel& model);

// Renders and tokenizes, with exactly one BOS where the model has one (case M2). Long work: run it
// on the worker pool.
ApiResult<std::vector<model::TokenId>> encode_chat(const ServedModel& model, ChatPrompt prompt);

struct EncodedChat {
  std::vector<model::TokenId> tokens;
  std::vector<scheduler::Breakpoint> breakpoints;  // ascending
};
// The same, with the breakpoints in tokens: of the latest ones, each where the prompt stops being
// what it is however it goes on after the marked text. Costs another rendering.
ApiResult<EncodedChat> encode_chat(const ServedModel& model, ChatPrompt prompt,
                                   const CacheOptions& options);
void add_breakpoints(scheduler::Request& request,
                     const std::vector<scheduler::Breakpoint>& breakpoints);

}  // namespace spillway::server
