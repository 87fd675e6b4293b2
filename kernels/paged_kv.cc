#include "kernels/paged_kv.h"

namespace spillway::kernels {

static_assert(KvGroupLayout{.layers = 30, .kv_heads = 3, .head_dim = 64}.page_bytes() ==
              30u * 3 * 2 * 16 * 64 * 2);

}  // namespace spillway::kernels
