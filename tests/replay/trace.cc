#include "trace.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "runtime/prng.h"

namespace spillway::replay {
namespace {

// The text after "name": in a line of JSON; these lines have no strings that could hold it.
std::optional<std::string_view> field(std::string_view line, std::string_view name) {
  const std::string quoted = "\"" + std::string(name) + "\":";
  const size_t at = line.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + quoted.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<TracedRequest> parse_line(std::string_view line) {
  TracedRequest request;
  auto input = field(line, "input_length");
  auto ids = field(line, "hash_ids");
  if (!input || !ids || !ids->starts_with('[')) return std::nullopt;
  const auto tokens = take_number(*input);
  if (!tokens) return std::nullopt;
  request.input_tokens = *tokens;
  ids->remove_prefix(1);
  while (!ids->starts_with(']')) {
    while (ids->starts_with(' ') || ids->starts_with(',')) ids->remove_prefix(1);
    const auto id = take_number(*ids);
    if (!id) return std::nullopt;
    request.blocks.push_back(*id);
  }
  return request;
}

}  // namespace

Result<Trace> read_trace(std::istream& in) {
  Trace trace;
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    auto request = parse_line(line);
    if (!request) {
      return invalid_argument("line " + std::to_string(number) +
                              " of the trace is not an object with input_length and hash_ids");
    }
    trace.push_back(std::move(*request));
  }
  return trace;
}

Trace time_slice(const Trace& trace, uint32_t part, uint32_t parts) {
  const auto at = [&](uint32_t i) {
    return trace.begin() + static_cast<ptrdiff_t>(trace.size() * i / parts);
  };
  return Trace(at(part), at(part + 1));
}

Trace some_users(const Trace& trace, uint32_t every) {
  Trace out;
  for (const TracedRequest& request : trace) {
    if (request.blocks.empty()) continue;
    const uint32_t own = request.blocks[std::min<size_t>(1, request.blocks.size() - 1)];
    if ((uint64_t{own} * 0x9e3779b97f4a7c15u >> 33) % every == 0) out.push_back(request);
  }
  return out;
}

Trace shuffled_runs(const Trace& trace, uint32_t run, uint64_t seed) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < trace.size(); at += run) starts.push_back(at);
  Prng random(seed);
  for (size_t i = starts.size(); i > 1; --i) std::swap(starts[i - 1], starts[random.below(i)]);
  Trace out;
  for (size_t start : starts) {
    const size_t end = std::min(trace.size(), start + run);
    out.insert(out.end(), trace.begin() + static_cast<ptrdiff_t>(start),
               trace.begin() + static_cast<ptrdiff_t>(end));
  }
  return out;
}

}  // namespace spillway::replay
