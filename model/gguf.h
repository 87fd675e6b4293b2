// A GGUF model file (versions 2 and 3, little endian): typed metadata and tensors, as views into
// the mapped file. Source: the GGUF specification,
// github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// Safe against any bytes (case M1): every count, length and offset is checked against the file
// before it is used, and the parsed index takes memory in proportion to the file's size at most.
// Immutable after construction: any thread. Copies share the mapping. Views live as long as a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor_type.h"
#include "runtime/result.h"

namespace spillway::model {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
std::string_view gguf_type_name(GgufType type);

// One metadata value. For an array `element` is its elements' type and `count` their number;
// for a scalar `element` equals `type` and `count` is 1.
struct GgufValue {
  std::string_view key;
  GgufType type{};
  GgufType element{};
  uint64_t count = 1;
  std::span<const std::byte> payload;  // strings: each a u64 length, then its bytes
};

struct GgufTensor {
  std::string_view name;
  kernels::TensorType type{};
  uint32_t rank = 0;
  std::array<uint64_t, 4> dims{1, 1, 1, 1};  // dims[0] is the contiguous one: inputs of a matrix
  std::span<const std::byte> data;

  uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

class GgufFile {
 public:
  // Maps the file and, of a split model, all its parts (`path` names the first:
  // NAME-00001-of-0000N.gguf). Errors name the file and the field.
  static Result<GgufFile> open(const std::string& path);
  // Parses one part from memory, which must outlive the result. `name` is used in messages.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  uint64_t file_bytes() const { return file_bytes_; }  // of all parts

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const GgufValue* find(std::string_view key) const;
  std::span<const GgufValue> values() const { return values_; }  // sorted by key

  // Scalars. A missing key, another type or a value out of range is an error that names the key.
  // Integers of any width are accepted where they fit; get_f32 also takes f64 and integers.
  Result<uint32_t> get_u32(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  // The same, but a missing key gives `fallback`.
  Result<uint32_t> get_u32_or(std::string_view key, uint32_t fallback) const;
  Result<float> get_f32_or(std::string_view key, float fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;

  // Arrays. The strings stay views into the file.
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;  // of f32 or f64
  Result<std::vector<int64_t>> get_ints(std::string_view key) const;  // of any integer or bool

  const GgufTensor* tensor(std::string_view name) const;            // null: none
  std::span<const GgufTensor> tensors() const { return tensors_; }  // sorted by name

 private:
  Error error(std::string_view key, const std::string& what) const;
  Result<const GgufValue*> need(std::string_view key) const;
  Error wrong_type(const GgufValue& value, const char* wanted) const;
  Result<void> merge_part(GgufFile part, uint32_t index, uint32_t count);
  Result<void> open_parts(const std::string& path);
  Result<void> index_tensors();

  std::string name_;
  uint64_t file_bytes_ = 0;
  std::vector<std::shared_ptr<const void>> mappings_;
  std::vector<GgufValue> values_;
  std::vector<GgufTensor> tensors_;
};

// For messages: in quotes, with bytes that do not print escaped, cut at 80.
std::string in_quotes(std::string_view text);

}  // namespace spillway::model
