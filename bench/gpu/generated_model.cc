#include "bench/gpu/generated_model.h"

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/half.h"
#include "kernels/tensor_type.h"
#include "model/gguf.h"
#include "runtime/check.h"

namespace spillway::bench {
namespace {

using kernels::TensorType;
using model::GgufType;

constexpr size_t kAlignment = 32;
constexpr size_t kBlockBytes = 34;             // of Q8_0: a scale of f16 and 32 codes
constexpr uint32_t kTypeF32 = 0, kTypeQ8 = 8;  // in a file

struct Tensor {
  std::string name;
  uint32_t inputs = 0;
  uint32_t outputs = 0;  // 0: a vector of floats, all 1

  size_t bytes() const {
    return outputs == 0 ? inputs * sizeof(float) : size_t{outputs} * inputs / 32 * kBlockBytes;
  }
};

std::vector<Tensor> tensors_of(const GeneratedModel& m) {
  const uint32_t kv = m.embedding / m.heads * m.kv_heads;
  std::vector<Tensor> out = {{"token_embd.weight", m.embedding, m.vocabulary},
                             {"output_norm.weight", m.embedding, 0}};
  for (uint32_t layer = 0; layer < m.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    out.push_back({prefix + "attn_norm.weight", m.embedding, 0});
    out.push_back({prefix + "attn_q.weight", m.embedding, m.embedding});
    out.push_back({prefix + "attn_k.weight", m.embedding, kv});
    out.push_back({prefix + "attn_v.weight", m.embedding, kv});
    out.push_back({prefix + "attn_output.weight", m.embedding, m.embedding});
    out.push_back({prefix + "ffn_norm.weight", m.embedding, 0});
    out.push_back({prefix + "ffn_gate.weight", m.embedding, m.feed_forward});
    out.push_back({prefix + "ffn_up.weight", m.embedding, m.feed_forward});
    out.push_back({prefix + "ffn_down.weight", m.feed_forward, m.embedding});
  }
  return out;
}

// The file's head: values and tensors' places.
class Head {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    put(uint64_t{text.size()});
    bytes_ += text;
  }
  template <class T>
  void value(const std::string& key, GgufType type, T value) {
    text(key);
    put(type);
    put(value);
  }
  void align() { bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0'); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

Head head_of(const GeneratedModel& m, const std::vector<Tensor>& tensors) {
  const std::array<std::pair<const char*, uint32_t>, 6> numbers = {
      {{"block_count", m.layers},
       {"context_length", m.context},
       {"embedding_length", m.embedding},
       {"feed_forward_length", m.feed_forward},
       {"attention.head_count", m.heads},
       {"attention.head_count_kv", m.kv_heads}}};
  Head head;
  for (const char c : {'G', 'G', 'U', 'F'}) head.put(c);
  head.put(uint32_t{3});
  head.put(uint64_t{tensors.size()});
  head.put(uint64_t{numbers.size() + 2});
  head.text("general.architecture");
  head.put(GgufType::kString);
  head.text("llama");
  head.value("llama.attention.layer_norm_rms_epsilon", GgufType::kF32, 1e-5f);
  for (const auto& [key, value] : numbers) {
    head.value(std::string("llama.") + key, GgufType::kU32, value);
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    head.text(tensor.name);
    head.put(uint32_t{tensor.outputs == 0 ? 1u : 2u});
    head.put(uint64_t{tensor.inputs});
    if (tensor.outputs != 0) head.put(uint64_t{tensor.outputs});
    head.put(tensor.outputs == 0 ? kTypeF32 : kTypeQ8);
    head.put(offset);
    offset += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  head.align();
  return head;
}

// Rows whose products keep about the size of their inputs.
void fill(const Tensor& tensor, std::mt19937_64& random, std::vector<char>& to) {
  to.assign((tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  if (tensor.outputs == 0) {
    const float one = 1;
    for (size_t i = 0; i < tensor.inputs; ++i) std::memcpy(&to[i * sizeof one], &one, sizeof one);
    return;
  }
  // Codes are uniform in [-128, 127], of deviation 74.
  const uint16_t scale =
      kernels::f32_to_f16(1.0f / (74.0f * std::sqrt(static_cast<float>(tensor.inputs))));
  for (size_t at = 0; at < tensor.bytes(); at += kBlockBytes) {
    std::memcpy(&to[at], &scale, sizeof scale);
    for (size_t i = 0; i < 32; i += sizeof(uint64_t)) {
      const uint64_t codes = random();
      std::memcpy(&to[at + sizeof scale + i], &codes, sizeof codes);
    }
  }
}

}  // namespace

Result<> write_model(const std::string& path, const GeneratedModel& model) {
  CHECK(model.embedding % 32 == 0);
  CHECK(model.feed_forward % 32 == 0);
  const std::vector<Tensor> tensors = tensors_of(model);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const Head head = head_of(model, tensors);
  file.write(head.bytes().data(), static_cast<std::streamsize>(head.bytes().size()));
  std::mt19937_64 random(1);
  std::vector<char> bytes;
  for (const Tensor& tensor : tensors) {
    fill(tensor, random, bytes);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  if (!file) return Error{ErrorCode::kIo, "cannot write a model of random weights to " + path};
  return Result<>();
}

}  // namespace spillway::bench
