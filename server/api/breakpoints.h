// Where the static part of a prompt ends: text parts that carry `prompt_cache_breakpoint`, and what
// a request says of caching beside it. The shapes are OpenAI's (2026).
//
// A breakpoint is noted as a place in its message's content while that is made of parts, stays with
// the message where a conversation is kept, and becomes a count of tokens once the prompt is
// rendered.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/fields.h"

namespace spillway::server {

// Of one request: prompt_cache_options, prompt_cache_retention and prompt_cache_key.
struct CacheOptions {
  bool explicit_only = false;  // only what lies before a breakpoint is for the cache
  bool ttl_given = false;
  std::chrono::seconds ttl{30 *
                           60};  // that a breakpoint is held at least, unless it says so itself
  bool prewarm = false;          // Responses: compute the prompt alone
  // Most breakpoints of one request, the latest ones: with an implicit one they are four.
  size_t breakpoints_max() const { return explicit_only ? 4 : 3; }
};
CacheOptions read_cache_options(Fields& fields);
// As a response repeats them: {"mode", "ttl"}.
boost::json::object cache_options_echo(const CacheOptions& options);

// A marked end, in bytes of its message's content.
struct MarkedPlace {
  size_t message = 0;
  size_t offset = 0;
  std::optional<std::chrono::seconds> ttl = std::nullopt;  // its own
};

// Reads a text part's `prompt_cache_breakpoint`, if it has one, and notes it in `marks` as an end
// at `offset`. `here` is the part's path, as "messages[0].content[1]".
ApiResult<> note_breakpoint(const boost::json::object& part, const std::string& here, size_t offset,
                            boost::json::array& marks);
// Puts the marks into the message, or takes those of all messages out of them. Places past a
// content's end are dropped.
void attach_breakpoints(boost::json::object& message, boost::json::array marks);
std::vector<MarkedPlace> take_breakpoints(boost::json::array& messages);
// `bytes` were put in front of the message's content.
void shift_breakpoints(boost::json::object& message, size_t bytes);

}  // namespace spillway::server
