// GPT-2's way of writing bytes as printable characters in vocabularies: a byte that prints is
// itself, the others are U+0100 and on, in order. Source: the published encoder of GPT-2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::model {

uint32_t byte_to_code_point(uint8_t byte);

// The bytes that `text` writes; nothing if some character of it writes none.
std::optional<std::string> decode_byte_text(std::string_view text);

}  // namespace spillway::model
