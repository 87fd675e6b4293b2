#include "model/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "model/gguf_parser.h"
#include "model/mapped_file.h"

namespace spillway::model {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// An integer or bool element as i64; nothing for other types and for u64 past its range.
std::optional<int64_t> load_integer(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(from);
    case GgufType::kI8:
      return load<int8_t>(from);
    case GgufType::kU16:
      return load<uint16_t>(from);
    case GgufType::kI16:
      return load<int16_t>(from);
    case GgufType::kU32:
      return load<uint32_t>(from);
    case GgufType::kI32:
      return load<int32_t>(from);
    case GgufType::kI64:
      return load<int64_t>(from);
    case GgufType::kBool:
      return load<uint8_t>(from) != 0;
    case GgufType::kU64: {
      const auto value = load<uint64_t>(from);
      if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<float> load_float(GgufType type, const std::byte* from) {
  if (type == GgufType::kF32) return load<float>(from);
  if (type == GgufType::kF64) return static_cast<float>(load<double>(from));
  return std::nullopt;
}

constexpr char kDuplicate[] = " appears twice; it must be unique";

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  static constexpr std::string_view kNames[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                "i32", "f32", "bool", "string", "array",
                                                "u64", "i64", "f64"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown type";
}

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (char c : text.substr(0, 80)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      result += escaped;
    }
  }
  return result + (text.size() > 80 ? "...'" : "'");
}

Error GgufFile::error(std::string_view key, const std::string& what) const {
  return {ErrorCode::kCorrupt, name_ + ": " + in_quotes(key) + " " + what};
}

const GgufValue* GgufFile::find(std::string_view key) const {
  auto at =
      std::lower_bound(values_.begin(), values_.end(), key,
                       [](const GgufValue& value, std::string_view k) { return value.key < k; });
  return at != values_.end() && at->key == key ? &*at : nullptr;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                             [](const GgufTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

Result<const GgufValue*> GgufFile::need(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return error(key, "is missing; the file lacks what this model needs");
  return value;
}

Error GgufFile::wrong_type(const GgufValue& value, const char* wanted) const {
  std::string has{gguf_type_name(value.type)};
  if (value.type == GgufType::kArray) has += " of " + std::string(gguf_type_name(value.element));
  return error(value.key, "is " + has + "; " + wanted + " is expected");
}

Result<uint32_t> GgufFile::get_u32(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  const GgufType type = (*value)->type;
  if (gguf_type_bytes(type) == 0 || type == GgufType::kBool || type == GgufType::kF32 ||
      type == GgufType::kF64) {
    return wrong_type(**value, "an integer");
  }
  const auto number = load_integer(type, (*value)->payload.data());
  if (!number || *number < 0 || *number > std::numeric_limits<uint32_t>::max()) {
    return error(key, "is out of range; 0 to 4294967295 is accepted");
  }
  return static_cast<uint32_t>(*number);
}

Result<float> GgufFile::get_f32(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  const GgufType type = (*value)->type;
  if (gguf_type_bytes(type) == 0 || type == GgufType::kBool) return wrong_type(**value, "a number");
  const std::byte* payload = (*value)->payload.data();
  const auto number = load_float(type, payload);
  const auto integer = number ? std::nullopt : load_integer(type, payload);
  if (!number && !integer) return error(key, "is out of range");
  const float result = number ? *number : static_cast<float>(*integer);
  if (!std::isfinite(result)) return error(key, "is not a finite number");
  return result;
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  if ((*value)->type != GgufType::kBool) return wrong_type(**value, "a bool");
  return load<uint8_t>((*value)->payload.data()) != 0;
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  if ((*value)->type != GgufType::kString) return wrong_type(**value, "a string");
  const auto text = (*value)->payload.subspan(8);
  return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
}

Result<uint32_t> GgufFile::get_u32_or(std::string_view key, uint32_t fallback) const {
  return has(key) ? get_u32(key) : Result<uint32_t>(fallback);
}
Result<float> GgufFile::get_f32_or(std::string_view key, float fallback) const {
  return has(key) ? get_f32(key) : Result<float>(fallback);
}
Result<bool> GgufFile::get_bool_or(std::string_view key, bool fallback) const {
  return has(key) ? get_bool(key) : Result<bool>(fallback);
}
Result<std::string_view> GgufFile::get_string_or(std::string_view key,
                                                 std::string_view fallback) const {
  return has(key) ? get_string(key) : Result<std::string_view>(fallback);
}

Result<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  if ((*value)->type != GgufType::kArray || (*value)->element != GgufType::kString) {
    return wrong_type(**value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve((*value)->count);
  const std::byte* at = (*value)->payload.data();
  for (uint64_t i = 0; i < (*value)->count; ++i) {
    const auto length = load<uint64_t>(at);  // checked when the file was parsed
    strings.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return strings;
}

Result<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  const GgufType element = (*value)->element;
  if ((*value)->type != GgufType::kArray ||
      (element != GgufType::kF32 && element != GgufType::kF64)) {
    return wrong_type(**value, "an array of floats");
  }
  std::vector<float> numbers((*value)->count);
  const size_t width = gguf_type_bytes(element);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = *load_float(element, (*value)->payload.data() + i * width);
  }
  return numbers;
}

Result<std::vector<int64_t>> GgufFile::get_ints(std::string_view key) const {
  auto value = need(key);
  if (!value) return value.error();
  const GgufType element = (*value)->element;
  const size_t width = gguf_type_bytes(element);
  if ((*value)->type != GgufType::kArray || width == 0 || element == GgufType::kF32 ||
      element == GgufType::kF64) {
    return wrong_type(**value, "an array of integers");
  }
  std::vector<int64_t> numbers((*value)->count);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = load_integer(element, (*value)->payload.data() + i * width);
    if (!number) return error(key, "holds a number out of range at index " + std::to_string(i));
    numbers[i] = *number;
  }
  return numbers;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  auto part = parse_gguf_part(bytes, name);
  if (!part) return part.error();
  GgufFile file;
  file.name_ = std::move(name);
  file.file_bytes_ = bytes.size();
  file.values_ = std::move(part->values);
  file.tensors_ = std::move(part->tensors);
  std::sort(file.values_.begin(), file.values_.end(),
            [](const GgufValue& a, const GgufValue& b) { return a.key < b.key; });
  auto same_key =
      std::adjacent_find(file.values_.begin(), file.values_.end(),
                         [](const GgufValue& a, const GgufValue& b) { return a.key == b.key; });
  if (same_key != file.values_.end()) return file.error(same_key->key, kDuplicate + 1);
  if (auto indexed = file.index_tensors(); !indexed) return indexed.error();
  return file;
}

Result<void> GgufFile::index_tensors() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  auto same =
      std::adjacent_find(tensors_.begin(), tensors_.end(),
                         [](const GgufTensor& a, const GgufTensor& b) { return a.name == b.name; });
  if (same == tensors_.end()) return {};
  return Error{ErrorCode::kCorrupt, name_ + ": tensor " + in_quotes(same->name) + kDuplicate};
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  auto file = parse(mapped->bytes(), path);
  if (!file) return file.error();
  file->mappings_.push_back(std::make_shared<MappedFile>(*mapped));
  if (auto parts = file->open_parts(path); !parts) return parts.error();
  return file;
}

// A split model: part i of n is NAME-0000i-of-0000n.gguf, numbered from 1, and says in split.no
// its number from 0. The first part holds the metadata.
Result<void> GgufFile::open_parts(const std::string& path) {
  const auto count = get_u32_or("split.count", 1);
  if (!count) return count.error();
  const auto number = get_u32_or("split.no", 0);
  if (!number) return number.error();
  if (*count <= 1) return {};
  char ending[32];
  std::snprintf(ending, sizeof(ending), "-%05u-of-%05u.gguf", *number + 1, *count);
  if (!path.ends_with(ending)) {
    return error("split.count", "is " + std::to_string(*count) +
                                    ", so the file's name must end in " + in_quotes(ending));
  }
  if (*number != 0) {
    return Error{ErrorCode::kInvalidArgument, name_ + ": part " + std::to_string(*number + 1) +
                                                  " of a split model; give the first"};
  }
  const std::string stem = path.substr(0, path.size() - std::strlen(ending));
  for (uint32_t i = 1; i < *count; ++i) {
    std::snprintf(ending, sizeof(ending), "-%05u-of-%05u.gguf", i + 1, *count);
    auto mapped = MappedFile::open(stem + ending);
    if (!mapped) return mapped.error();
    auto part = parse(mapped->bytes(), stem + ending);
    if (!part) return part.error();
    part->mappings_.push_back(std::make_shared<MappedFile>(*mapped));
    if (auto merged = merge_part(*std::move(part), i, *count); !merged) return merged.error();
  }
  const auto total = get_u32_or("split.tensors.count", static_cast<uint32_t>(tensors_.size()));
  if (!total) return total.error();
  if (*total != tensors_.size()) {
    return error("split.tensors.count", "is " + std::to_string(*total) + ", but the parts hold " +
                                            std::to_string(tensors_.size()));
  }
  return index_tensors();
}

Result<void> GgufFile::merge_part(GgufFile part, uint32_t index, uint32_t count) {
  const auto part_number = part.get_u32("split.no");
  if (!part_number) return part_number.error();
  const auto part_count = part.get_u32("split.count");
  if (!part_count) return part_count.error();
  if (*part_number != index || *part_count != count) {
    return part.error("split.no", "and 'split.count' do not agree with the file's name");
  }
  file_bytes_ += part.file_bytes_;
  mappings_.insert(mappings_.end(), part.mappings_.begin(), part.mappings_.end());
  tensors_.insert(tensors_.end(), part.tensors_.begin(), part.tensors_.end());
  return {};
}

}  // namespace spillway::model
