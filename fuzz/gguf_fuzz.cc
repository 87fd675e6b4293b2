// Any bytes as a GGUF file (case M1): parsing, then every typed access to every value.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spillway::model;
  auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
  if (!file) return 0;
  for (const GgufValue& value : file->values()) {
    (void)file->get_u32(value.key);
    (void)file->get_f32(value.key);
    (void)file->get_bool(value.key);
    (void)file->get_string(value.key);
    (void)file->get_strings(value.key);
    (void)file->get_floats(value.key);
    (void)file->get_ints(value.key);
  }
  unsigned sum = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (!tensor.data.empty())
      sum += static_cast<unsigned>(tensor.data.front() ^ tensor.data.back());
  }
  return sum == 0xffffffffu ? 1 : 0;  // keeps the reads
}
