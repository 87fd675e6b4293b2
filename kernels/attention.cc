#include "kernels/attention.h"

#include <vector>

#include "kernels/attention_levels.h"
#include "kernels/attention_reference.h"
#include "runtime/check.h"

namespace spillway::kernels {

const AttentionKernels& attention_kernels(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return attention_kernels_avx512();
  if (level >= CpuLevel::kAvx2) return attention_kernels_avx2();
  return attention_kernels_baseline();
}

struct AttentionPlan::Impl {
  const AttentionKernels& kernels;
  KvGroupLayout layout;
  AttentionShape shape;
  std::vector<AttentionSequence> sequences;
};

AttentionPlan::AttentionPlan(CpuLevel level, const KvGroupLayout& layout,
                             const AttentionShape& shape)
    : impl_(new Impl{attention_kernels(level), layout, shape, {}}) {
  CHECK(layout.kv_heads > 0);
  CHECK(shape.heads % layout.kv_heads == 0);
}

AttentionPlan::~AttentionPlan() = default;

void AttentionPlan::prepare(std::span<const AttentionSequence> sequences, uint32_t workers) {
  CHECK(workers > 0);
  impl_->sequences.assign(sequences.begin(), sequences.end());
}

void AttentionPlan::run(Team& team, uint32_t layer, const AttentionRows& rows) {
  const Impl& plan = *impl_;
  uint32_t turn = 0;
  for (const AttentionSequence& sequence : plan.sequences) {
    for (uint32_t row = 0; row < sequence.rows; ++row) {
      for (uint32_t head = 0; head < plan.shape.heads; ++head) {
        if (turn++ % team.count() != team.index()) continue;
        const size_t at = sequence.first_row + row;
        const size_t column = size_t{head} * plan.layout.head_dim;
        reference::attend(plan.shape, sequence.kv,
                          {.layer = layer, .head = head, .position = sequence.position + row},
                          rows.q + at * rows.q_stride + column,
                          rows.out + at * rows.out_stride + column, plan.kernels.fused);
      }
    }
  }
}

}  // namespace spillway::kernels
