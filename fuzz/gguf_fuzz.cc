// Any bytes as a GGUF file (case M1): parsing, every typed access to every value, and all that is
// made of a model file before its weights are used: config, tensors, KV layout, tokenizer. A
// tokenizer that could be made encodes the end of the file and some text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fuzz/tokenizer_checks.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/tensors.h"
#include "model/tokenizer.h"
#include "runtime/check.h"

namespace spillway::model {
namespace {

constexpr size_t kTextBytesMax = 200;

// Keeps reads that have no other effect.
volatile unsigned sink;

void read_everything(const GgufFile& file) {
  for (const GgufValue& value : file.values()) {
    (void)file.get_u32(value.key);
    (void)file.get_f32(value.key);
    (void)file.get_bool(value.key);
    (void)file.get_string(value.key);
    (void)file.get_strings(value.key);
    (void)file.get_floats(value.key);
    (void)file.get_ints(value.key);
  }
  unsigned sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.data.empty())
      sum += static_cast<unsigned>(tensor.data.front() ^ tensor.data.back());
  }
  sink = sum;
}

// A config that was accepted may be relied on without another look.
void use_config(const GgufFile& file, const ModelConfig& config) {
  CHECK(config.architecture != nullptr);
  CHECK(config.vocabulary > 0);
  CHECK(config.kv_heads > 0 && config.heads % config.kv_heads == 0);
  CHECK(config.head_dim >= 2 && config.head_dim % 2 == 0);
  CHECK(config.places.size() == config.layers);
  CHECK(config.norm_epsilon >= 0);
  CHECK(config.query_scale > 0);
  size_t layers = 0;
  for (const LayerGroup& group : config.groups) {
    CHECK(!group.layers.empty());
    CHECK(group.rope.dims % 2 == 0 && group.rope.dims <= config.head_dim);
    CHECK(group.rope.factor > 0);
    layers += group.layers.size();
  }
  CHECK(layers == config.layers);
  for (const kernels::KvGroupLayout& layout : kv_groups(config, kernels::KvType::kF16, 16)) {
    CHECK(layout.page_bytes() > 0 && layout.page_bytes() % 4096 == 0);
  }
  const auto tensors = find_model_tensors(file, config);
  if (tensors) CHECK(tensors->layers.size() == config.layers);
}

void use_tokenizer(const Tokenizer& tokenizer, std::span<const uint8_t> end) {
  CHECK(tokenizer.vocabulary() > 0);
  const std::string bytes(end.begin(), end.end());
  for (const std::string& text : {std::string(" a\tB\n\n12 \xC3\xA9\xE4\xBD\xA0\xFF<s>"), bytes}) {
    check_encoding(tokenizer, text);
  }
  for (const TokenId token : tokenizer.end_tokens()) CHECK(tokenizer.ends_generation(token));
}

void use(std::span<const uint8_t> bytes) {
  const auto file = GgufFile::parse(std::as_bytes(bytes), "fuzz.gguf");
  if (!file) {
    CHECK(!file.error().message.empty());
    return;
  }
  read_everything(*file);
  if (const auto config = read_model_config(*file)) use_config(*file, *config);
  const auto tokenizer = Tokenizer::create(*file);
  if (tokenizer) use_tokenizer(**tokenizer, bytes.last(std::min(bytes.size(), kTextBytesMax)));
}

}  // namespace
}  // namespace spillway::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::model::use({data, size});
  return 0;
}
