// Builds GGUF bytes for tests, hostile ones included: every count and field is written as given.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"

namespace spillway::model {

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  template <class T>
  GgufWriter& value(std::string_view key, GgufType type, T number) {
    begin_value(key, type);
    put(values_, number);
    return *this;
  }
  GgufWriter& u32(std::string_view key, uint32_t number) {
    return value(key, GgufType::kU32, number);
  }
  GgufWriter& f32(std::string_view key, float number) { return value(key, GgufType::kF32, number); }
  GgufWriter& string(std::string_view key, std::string_view text) {
    begin_value(key, GgufType::kString);
    put_string(values_, text);
    return *this;
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& list) {
    begin_value(key, GgufType::kArray);
    put(values_, GgufType::kString);
    put(values_, uint64_t{list.size()});
    for (const std::string& text : list) put_string(values_, text);
    return *this;
  }
  // An array whose stated count may lie.
  template <class T>
  GgufWriter& array(std::string_view key, GgufType element, const std::vector<T>& list,
                    uint64_t count) {
    begin_value(key, GgufType::kArray);
    put(values_, element);
    put(values_, count);
    for (T number : list) put(values_, number);
    return *this;
  }
  GgufWriter& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                     uint64_t offset) {
    ++tensor_count_;
    put_string(tensors_, name);
    put(tensors_, static_cast<uint32_t>(dims.size()));
    for (uint64_t size : dims) put(tensors_, size);
    put(tensors_, type);
    put(tensors_, offset);
    return *this;
  }
  GgufWriter& data_bytes(size_t count) {
    data_.resize(count, '\x11');
    return *this;
  }

  std::string bytes() const { return bytes(tensor_count_, value_count_); }
  std::string bytes(uint64_t tensor_count, uint64_t value_count) const {
    std::string file = "GGUF";
    put(file, version);
    put(file, tensor_count);
    put(file, value_count);
    file += values_ + tensors_;
    if (!data_.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data_;
  }

 private:
  template <class T>
  static void put(std::string& to, T number) {
    char raw[sizeof(T)];
    std::memcpy(raw, &number, sizeof(T));
    to.append(raw, sizeof(T));
  }
  static void put_string(std::string& to, std::string_view text) {
    put(to, uint64_t{text.size()});
    to += text;
  }
  void begin_value(std::string_view key, GgufType type) {
    ++value_count_;
    put_string(values_, key);
    put(values_, type);
  }

  std::string values_, tensors_, data_;
  uint64_t value_count_ = 0, tensor_count_ = 0;
};

}  // namespace spillway::model
