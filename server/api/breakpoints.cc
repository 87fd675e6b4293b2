#include "server/api/breakpoints.h"

#include <algorithm>
#include <boost/json.hpp>

namespace spillway::server {
namespace {

// A member of a normalized message, as [[offset, seconds or null], ...]. Never rendered.
constexpr std::string_view kMember = "spillway:breakpoints";
constexpr size_t kKeyBytesMax = 1024;
constexpr std::chrono::seconds kTtlMax = std::chrono::hours(12);

std::optional<std::chrono::seconds> read_ttl(Fields& fields) {
  const auto ttl = fields.text("ttl", 64);
  if (!ttl) return std::nullopt;
  if (*ttl == "30m") return std::chrono::minutes(30);
  if (*ttl == "12h") return std::chrono::hours(12);
  fields.fail("ttl", "must be '30m' or '12h'");
  return std::nullopt;
}

// A client may send a member of this name itself: then it is no more than a wrong mark.
std::optional<MarkedPlace> read_mark(const json::value& mark, size_t message, size_t bytes) {
  const json::array* pair = mark.if_array();
  if (pair == nullptr || pair->size() != 2) return std::nullopt;
  boost::system::error_code wrong;
  const auto offset = (*pair)[0].to_number<uint64_t>(wrong);
  if (wrong || offset > bytes) return std::nullopt;
  MarkedPlace place{.message = message, .offset = offset};
  if ((*pair)[1].is_null()) return place;
  const auto seconds = (*pair)[1].to_number<int64_t>(wrong);
  if (wrong || seconds < 1 || seconds > kTtlMax.count()) return std::nullopt;
  place.ttl = std::chrono::seconds(seconds);
  return place;
}

}  // namespace

CacheOptions read_cache_options(Fields& fields) {
  CacheOptions out;
  fields.text("prompt_cache_key", kKeyBytesMax);
  const auto retention = fields.text("prompt_cache_retention", 64);
  if (retention && *retention != "in_memory" && *retention != "in-memory" && *retention != "24h") {
    fields.fail("prompt_cache_retention", "must be 'in_memory' or '24h'");
  }
  if (fields.has("prompt_cache_breakpoint")) {
    fields.fail("prompt_cache_breakpoint",
                "stands in a text part of a message's content: mark the last part of what stays "
                "the same");
  }
  const json::object* options = fields.object("prompt_cache_options");
  if (options == nullptr) return out;
  Fields inner(*options, "prompt_cache_options.");
  if (const auto mode = inner.text("mode", 64)) {
    if (*mode != "implicit" && *mode != "explicit") {
      inner.fail("mode", "must be 'implicit' or 'explicit'");
    }
    out.explicit_only = *mode == "explicit";
  }
  if (const auto ttl = read_ttl(inner)) {
    out.ttl = *ttl;
    out.ttl_given = true;
  }
  inner.flag("prewarm", out.prewarm);
  inner.text("comparison_response_id", 256);
  if (!inner.ok()) fields.fail(inner.error());
  return out;
}

json::object cache_options_echo(const CacheOptions& options) {
  return {{"mode", options.explicit_only ? "explicit" : "implicit"},
          {"ttl", options.ttl > std::chrono::hours(1) ? "12h" : "30m"}};
}

ApiResult<> note_breakpoint(const json::object& part, const std::string& here, size_t offset,
                            json::array& marks) {
  Fields fields(part, here + ".");
  const json::object* mark = fields.object("prompt_cache_breakpoint");
  if (!fields.ok()) return fields.error();
  if (mark == nullptr) return {};
  Fields inner(*mark, here + ".prompt_cache_breakpoint.");
  const auto mode = inner.text("mode", 64);
  if (mode != "explicit") inner.fail("mode", "must be 'explicit'");
  const auto ttl = read_ttl(inner);
  if (!inner.ok()) return inner.error();
  marks.push_back(json::array{offset, ttl ? json::value(ttl->count()) : json::value(nullptr)});
  return {};
}

void attach_breakpoints(json::object& message, json::array marks) {
  if (!marks.empty()) message[kMember] = std::move(marks);
}

void shift_breakpoints(json::object& message, size_t bytes) {
  json::value* marks = message.if_contains(kMember);
  if (marks == nullptr) return;
  for (json::value& mark : marks->get_array()) {
    json::value& offset = mark.get_array()[0];
    offset = offset.to_number<uint64_t>() + bytes;
  }
}

std::vector<MarkedPlace> take_breakpoints(json::array& messages) {
  std::vector<MarkedPlace> places;
  for (size_t at = 0; at < messages.size(); ++at) {
    json::object& message = messages[at].get_object();
    const json::value* marks = message.if_contains(kMember);
    if (marks == nullptr) continue;
    const json::value* content = message.if_contains("content");
    if (content == nullptr || !content->is_string()) {  // a client's own member: nothing to mark
      message.erase(kMember);
      continue;
    }
    const size_t bytes = content->get_string().size();
    const json::array none;
    for (const json::value& mark : marks->is_array() ? marks->get_array() : none) {
      const auto place = read_mark(mark, at, bytes);
      if (place) places.push_back(*place);
    }
    message.erase(kMember);
  }
  return places;
}

}  // namespace spillway::server
