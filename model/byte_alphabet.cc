#include "model/byte_alphabet.h"

#include <array>

#include "model/utf8.h"

namespace spillway::model {
namespace {

constexpr uint32_t kCodePoints = 0x180;  // all that are used lie below

constexpr bool prints(uint32_t byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

struct Alphabet {
  std::array<uint16_t, 256> code_point{};
  std::array<int16_t, kCodePoints> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  uint16_t next = 0x100;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const uint16_t code_point = prints(byte) ? byte : next++;
    alphabet.code_point[byte] = code_point;
    alphabet.byte[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

uint32_t byte_to_code_point(uint8_t byte) { return kAlphabet.code_point[byte]; }

std::optional<std::string> decode_byte_text(std::string_view text) {
  std::string bytes;
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = read_utf8(text, at);
    if (step.kind != Utf8Kind::kValid || step.code_point >= kCodePoints) return std::nullopt;
    const int16_t byte = kAlphabet.byte[step.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    at += step.bytes;
  }
  return bytes;
}

}  // namespace spillway::model
