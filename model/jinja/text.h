// Searching and cutting strings in linear time, and small things that many files share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/run.h"

namespace spillway::model::jinja {

// What using an undefined value says.
[[noreturn]] void fail_undefined(const Value& value);

// Byte offset of the first occurrence at or after `from`, or npos. Linear, whatever the input.
size_t find_bytes(std::string_view text, std::string_view wanted, size_t from);
// ... of the last occurrence that ends at or before text.size().
size_t rfind_bytes(std::string_view text, std::string_view wanted);

// Without the spaces (or any of the code points in `drop`) at either end.
struct Ends {
  bool left = true;
  bool right = true;
};
std::string_view strip_spaces(std::string_view text, Ends ends);
std::string_view strip_points(std::string_view text, std::string_view drop, Ends ends);

// str.replace; count < 0: all.
std::string replace(Run& run, std::string_view text, std::string_view from, std::string_view to,
                    int64_t count);

// str.splitlines(keepends).
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace spillway::model::jinja
