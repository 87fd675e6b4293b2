#include "kernels/attention_reference.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/attention_scaling.h"
#include "kernels/half.h"
#include "kernels/ops_reference.h"
#include "runtime/check.h"

namespace spillway::kernels::reference {
namespace {

constexpr float kNothing = std::numeric_limits<float>::lowest();
constexpr float kUnseen = -std::numeric_limits<float>::infinity();
constexpr uint32_t kLanes = 16;

// What one split has summed, or all splits merged so far.
struct Partial {
  float max = kNothing;
  float sum = 0;
  std::vector<float> out;
};

class RowAttention {
 public:
  RowAttention(const AttentionShape& shape, const PagedKv& kv, const AttentionQuery& query,
               const float* q, bool fused)
      : kv_(kv),
        query_(query),
        math_(fused),
        scaling_(attention_scaling(shape)),
        kv_head_(query.head / (shape.heads / kv.layout->kv_heads)) {
    for (uint32_t d = 0; d < kv.layout->head_dim; ++d) q_.push_back(q[d] * scaling_.query);
    const uint32_t window = kv.layout->window;
    first_ = window != 0 && query.position >= window ? query.position - window + 1 : 0;
  }

  void run(float* out) {
    Partial total{.out = std::vector<float>(q_.size())};
    const uint32_t first_split = first_ / kAttentionSplitTokens;
    const uint32_t last_split = query_.position / kAttentionSplitTokens;
    for (uint32_t s = first_split; s <= last_split; ++s) merge(total, split(s));
    const float inverse = 1.0f / total.sum;
    // Adding zero makes a negative zero positive: its sign may hang on what was left out.
    for (size_t d = 0; d < q_.size(); ++d) out[d] = total.out[d] * inverse + 0.0f;
  }

 private:
  bool sees(uint32_t token) const { return token >= first_ && token <= query_.position; }

  float element(KvPart part, uint32_t token, uint32_t dim) const {
    return read_kv(kv_, part, {query_.layer, kv_head_, token, dim});
  }

  float score(uint32_t token) const {
    float sum = 0;
    for (uint32_t d = 0; d < q_.size(); ++d) {
      sum = math_.fma(q_[d], element(KvPart::kKey, token, d), sum);
    }
    if (scaling_.cap == 0) return sum;
    const float power = math_.exp2(std::min(sum, kSoftCapPowerMax));
    return math_.fma(-2.0f * scaling_.cap, 1.0f / (power + 1.0f), scaling_.cap);
  }

  Partial split(uint32_t index) const {
    Partial part{.out = std::vector<float>(q_.size())};
    float lanes[kLanes] = {};
    const uint32_t start = index * kAttentionSplitTokens;
    for (uint32_t b = 0; b < kAttentionSplitTokens; b += kAttentionBlockTokens) {
      block(start + b, part, lanes);
    }
    for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
      for (uint32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    part.sum = lanes[0];
    return part;
  }

  void block(uint32_t start, Partial& part, float (&lanes)[kLanes]) const {
    float p[kAttentionBlockTokens];
    float max = kUnseen;
    for (uint32_t t = 0; t < kAttentionBlockTokens; ++t) {
      p[t] = sees(start + t) ? score(start + t) : kUnseen;
      max = std::max(max, p[t]);
    }
    float factor = 1;
    if (max > part.max + kReferenceSlack) {
      factor = math_.exp2(part.max - max);
      part.max = max;
    }
    for (float& value : p) value = math_.exp2(value - part.max);
    for (uint32_t l = 0; l < kLanes; ++l) {
      lanes[l] = lanes[l] * factor + ((p[l] + p[l + 16]) + (p[l + 32] + p[l + 48]));
    }
    for (uint32_t d = 0; d < q_.size(); ++d) {
      float sum = part.out[d] * factor;
      for (uint32_t t = 0; t < kAttentionBlockTokens; ++t) {
        if (sees(start + t)) sum = math_.fma(p[t], element(KvPart::kValue, start + t, d), sum);
      }
      part.out[d] = sum;
    }
  }

  void merge(Partial& total, const Partial& part) const {
    const float max = std::max(total.max, part.max);
    const float old_factor = math_.exp2(total.max - max);
    const float new_factor = math_.exp2(part.max - max);
    total.max = max;
    total.sum = math_.fma(part.sum, new_factor, total.sum * old_factor);
    for (size_t d = 0; d < q_.size(); ++d) {
      total.out[d] = math_.fma(part.out[d], new_factor, total.out[d] * old_factor);
    }
  }

  const PagedKv& kv_;
  AttentionQuery query_;
  Arithmetic math_;
  AttentionScaling scaling_;
  uint32_t kv_head_;
  uint32_t first_ = 0;  // the first token that the row sees
  std::vector<float> q_;
};

}  // namespace

float read_kv(const PagedKv& kv, KvPart part, const KvElement& element) {
  const KvGroupLayout& layout = *kv.layout;
  const uint32_t page = element.token / layout.page_tokens;
  CHECK(page < kv.table.size());
  CHECK(kv.table[page] != kNoPage);
  const uint32_t block = element.token % layout.page_tokens / kKvBlockTokens;
  const uint32_t lane = element.token % kKvBlockTokens;
  const std::byte* base = kv.pages + static_cast<size_t>(kv.table[page]) * layout.page_bytes() +
                          layout.offset(element.layer, element.kv_head, block);
  size_t index = size_t{element.dim} * kKvBlockTokens + lane;
  if (part == KvPart::kValue) {
    base += layout.block_bytes();
    index = size_t{lane} * layout.head_dim + element.dim;
  }
  const std::byte* at = base + index * kv_type_bytes(layout.type);
  if (layout.type == KvType::kF16) return load_f16(at);
  if (layout.type == KvType::kBf16) return load_bf16(at);
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void attend(const AttentionShape& shape, const PagedKv& kv, const AttentionQuery& query,
            const float* q, float* out, bool fused) {
  RowAttention(shape, kv, query, q, fused).run(out);
}

}  // namespace spillway::kernels::reference
