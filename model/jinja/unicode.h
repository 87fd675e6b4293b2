// UTF-8 and what Python's str methods know of Unicode: classes and case mappings of code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway::model::jinja {

// Appends one code point. REQUIRES: a valid scalar value.
void append_utf8(std::string& out, char32_t point);

// Decodes the code point at `at` and moves past it. REQUIRES: valid UTF-8, at < text.size().
char32_t next_point(std::string_view text, size_t& at);

// The byte offset of code point number `character`, or the size when past the end.
size_t byte_offset(std::string_view text, int64_t character);

int64_t count_points(std::string_view text);

// Whether the bytes are well-formed UTF-8 without surrogates.
bool valid_utf8(std::string_view text);

bool is_printable(char32_t point);
bool is_space(char32_t point);
bool is_alphabetic(char32_t point);
bool is_decimal(char32_t point);
bool is_digit(char32_t point);    // decimals too, and superscripts
bool is_numeric(char32_t point);  // digits too, and fractions
bool is_upper(char32_t point);
bool is_lower(char32_t point);
bool is_title(char32_t point);
bool is_identifier_start(char32_t point);
bool is_identifier_part(char32_t point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);  // a final sigma is one
std::string to_folded(std::string_view text);
std::string to_capitalized(std::string_view text);  // first one title case, the others lower
std::string to_titled(std::string_view text);       // str.title(): each run of letters
std::string to_swapped(std::string_view text);

}  // namespace spillway::model::jinja
