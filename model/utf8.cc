#include "model/utf8.h"

#include "runtime/check.h"

namespace spillway::model {
namespace {

// What a lead byte asks for: the sequence's length (0: never a lead) and its second byte's range,
// which shuts out overlong forms, surrogates and what is past U+10FFFF.
struct Lead {
  uint8_t bytes;
  uint8_t second_min;
  uint8_t second_max;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step read_utf8(std::string_view text, size_t at) {
  DCHECK(at < text.size());
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes == 1) return {Utf8Kind::kValid, 1, byte(0)};
  if (lead.bytes == 0) return {Utf8Kind::kInvalid, 1, kReplacementCodePoint};
  uint32_t code_point = byte(0) & (0x7Fu >> lead.bytes);
  for (uint8_t i = 1; i < lead.bytes; ++i) {
    if (at + i >= text.size()) return {Utf8Kind::kIncomplete, i, kReplacementCodePoint};
    const uint8_t next = byte(i);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (next < min || next > max) return {Utf8Kind::kInvalid, i, kReplacementCodePoint};
    code_point = code_point << 6 | (next & 0x3Fu);
  }
  return {Utf8Kind::kValid, lead.bytes, code_point};
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80u | (code_point >> shift & 0x3Fu)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0u | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0u | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0u | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t append_valid_utf8(std::string& out, std::string_view text, bool at_end) {
  size_t at = 0;
  size_t copied = 0;  // text[copied, at) is valid and not yet in `out`
  while (at < text.size()) {
    const Utf8Step step = read_utf8(text, at);
    if (step.kind == Utf8Kind::kIncomplete && !at_end) break;
    if (step.kind != Utf8Kind::kValid) {
      out.append(text.substr(copied, at - copied));
      out.append(kReplacementText);
      copied = at + step.bytes;
    }
    at += step.bytes;
  }
  out.append(text.substr(copied, at - copied));
  return at;
}

}  // namespace spillway::model
