// The plain twin of attention.h: one query row and head at a time, scalar, in the documented order.
// `fused` as in ops_reference.h. Also the plain way to read one element of a page.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/paged_kv.h"

namespace spillway::kernels::reference {

enum class KvPart : uint8_t { kKey, kValue };

struct KvElement {
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  uint32_t token = 0;  // absolute position
  uint32_t dim = 0;
};

// REQUIRES: the token's page is in the table.
float read_kv(const PagedKv& kv, KvPart part, const KvElement& element);

struct AttentionQuery {
  uint32_t layer = 0;
  uint32_t head = 0;  // query head
  uint32_t position = 0;
};

// out[head_dim] of the query q[head_dim].
void attend(const AttentionShape& shape, const PagedKv& kv, const AttentionQuery& query,
            const float* q, float* out, bool fused);

}  // namespace spillway::kernels::reference
