// What a block of threads of attention_tile.cuh works on: its shape, its rows and tokens, where
// they lie in shared memory, and how they come there.
#pragma once

#include "kernels/cuda/paged.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace spillway::kernels::cuda {

inline constexpr uint32_t kTileThreads = 256;
inline constexpr uint32_t kTileParts = 8;  // stages of a block of 64 tokens: K's quarters, then V's
inline constexpr uint32_t kThreadRows = 4;

template <KvType kType, uint32_t kDimsMax>
struct TileShape {
  using Codec = KvCodec<kType>;
  using Stored = typename Codec::Stored;
  static constexpr uint32_t kRows = tile_rows(kDimsMax);
  static constexpr uint32_t kRowGroups = kRows / kThreadRows;
  static constexpr uint32_t kLanes = kTileThreads / kRowGroups;        // with the same rows
  static constexpr uint32_t kTokens = kAttentionBlockTokens / kLanes;  // a lane's
  static constexpr uint32_t kDims = kDimsMax / kLanes;                 // a lane's: by fours
  static constexpr uint32_t kSumLanes = kKvBlockTokens / kTokens;  // that have a row's 16 sums of p
  static constexpr uint32_t kStageDims = kDimsMax / 4;
  static constexpr uint32_t kStageElements = kAttentionBlockTokens * kStageDims;
  static constexpr uint32_t kStageBytes = kStageElements * kv_type_bytes(kType);
  static constexpr uint32_t kAhead = kStageBytes > 8192 ? 1 : 2;
  static constexpr uint32_t kStages = kAhead + 1;
  static constexpr uint32_t kCopyElements = 16 / kv_type_bytes(kType);
};

// What a block of threads works on.
template <class Shape>
struct TileWork {
  DeviceTile tile;
  const PageId* table;
  uint32_t kv_head;
  uint32_t first_head;
  uint32_t heads;       // of the tile
  uint32_t seen_begin;  // tokens that any row sees, within the tile's splits
  uint32_t seen_end;
  uint32_t shared_begin;  // and that every row sees
  uint32_t shared_end;
  Shared<float> q;             // (head_dim, row), scaled
  Shared<float> p;             // (token of 64, row): see p_index()
  Shared<uint32_t> positions;  // (row)
  Shared<typename Shape::Stored> stages;

  SPILLWAY_DEVICE uint32_t group() const { return thread_index() / Shape::kLanes; }
  SPILLWAY_DEVICE uint32_t lane() const { return thread_index() % Shape::kLanes; }
  SPILLWAY_DEVICE uint32_t rows() const { return tile.query_count * heads; }
  // Rows past the last are copies of it, never stored.
  SPILLWAY_DEVICE uint32_t query_of(uint32_t row) const {
    const uint32_t query = row / heads;
    return tile.first_query + (query < tile.query_count ? query : tile.query_count - 1);
  }
  // Of four rows of a token; turned by the lane that writes it, or lanes would meet in one bank.
  SPILLWAY_DEVICE uint32_t p_index(uint32_t token) const {
    const uint32_t turned = group() ^ (token / Shape::kTokens % Shape::kRowGroups);
    return token * Shape::kRows + kThreadRows * turned;
  }
  SPILLWAY_DEVICE bool any_sees(uint32_t first, uint32_t end) const {
    return first < seen_end && end > seen_begin;
  }
  SPILLWAY_DEVICE bool all_see(uint32_t first, uint32_t end) const {
    return first >= shared_begin && end <= shared_end;
  }
};

// A thread's part of the sums, of four rows.
template <class Shape>
struct TileSums {
  float scores[kThreadRows][Shape::kTokens];  // of tokens kTokens * lane and on
  float out[kThreadRows][Shape::kDims];       // of dims 4 * (lane + kLanes * j) and on
  float reference[kThreadRows];
  float lanes[Shape::kTokens];  // sums of p of row lane / kSumLanes: 16 over kSumLanes threads
  float total_maximum[kThreadRows];
  float total_sum[kThreadRows];
};

// Begins to copy part `part` of the block of 64 tokens at `start`; zeros for blocks of 16 that no
// row sees, whose pages may not be there.
template <KvType kType, class Shape>
SPILLWAY_DEVICE void fetch_part(const AttentionArgs& args, const TileWork<Shape>& work,
                                uint32_t start, uint32_t part,
                                const Shared<typename Shape::Stored>& stage) {
  constexpr uint32_t kCopy = Shape::kCopyElements;
  constexpr uint32_t kRowCopies = kAttentionBlockTokens / kCopy;  // of a dimension of K
  constexpr uint32_t kBlockCopies = kKvBlockTokens / kCopy;
  const uint32_t dims = args.kv.layout.head_dim;
  const bool is_key = part < 4;
  const uint32_t first_dim = part * Shape::kStageDims;
  uint32_t copies = kBlockCopies * dims;
  if (is_key) {
    const uint32_t left = first_dim < dims ? dims - first_dim : 0;
    copies = kRowCopies * (left < Shape::kStageDims ? left : Shape::kStageDims);
  }
  for (uint32_t i = thread_index(); i < copies; i += kTileThreads) {
    const uint32_t block = is_key ? i % kRowCopies / kBlockCopies : part - 4;
    const uint32_t token = start + block * kKvBlockTokens;
    const bool valid = work.any_sees(token, token + kKvBlockTokens);
    const std::byte* from = args.kv.pages;
    if (valid) {
      const uint32_t within =
          is_key ? (first_dim + i / kRowCopies) * kBlockCopies + i % kBlockCopies : i;
      from = kv_block(args.kv, work.table, args.layer, work.kv_head, token / kKvBlockTokens) +
             (is_key ? 0 : args.kv.layout.block_bytes()) + size_t{16} * within;
    }
    copy_async_16(stage, i * kCopy, from, valid);
  }
}

// Brings the rows' q, scaled, and positions. Four lanes read four dimensions of one row.
template <class Shape>
SPILLWAY_DEVICE void load_rows(const AttentionArgs& args, const TileWork<Shape>& work) {
  const uint32_t dims = args.kv.layout.head_dim;
  for (uint32_t i = thread_index(); i < dims * Shape::kRows; i += kTileThreads) {
    const uint32_t row = i / 4 % Shape::kRows;
    const uint32_t dim = i / (4 * Shape::kRows) * 4 + i % 4;
    const float* q = args.q + args.queries[work.query_of(row)].row * args.q_stride +
                     (work.first_head + row % work.heads) * dims;
    work.q[dim * Shape::kRows + row] = q[dim] * args.scaling.query;
  }
  for (uint32_t row = thread_index(); row < Shape::kRows; row += kTileThreads) {
    work.positions[row] = args.queries[work.query_of(row)].position;
  }
}

template <class Shape>
SPILLWAY_DEVICE void plan_tile(const AttentionArgs& args, const DeviceTile& tile,
                               TileWork<Shape>& work) {
  const KvGroupLayout& layout = args.kv.layout;
  const uint32_t heads = tile_heads(layout, args.heads);
  const uint32_t group = args.heads / layout.kv_heads;
  const uint32_t chunks = (group + heads - 1) / heads;
  const uint32_t first = block_index().y % chunks * heads;
  work.tile = tile;
  work.table = args.queries[work.tile.first_query].table;
  work.kv_head = block_index().y / chunks;
  work.first_head = work.kv_head * group + first;
  work.heads = group - first < heads ? group - first : heads;
  const uint32_t begin = work.tile.first_split * kAttentionSplitTokens;
  const uint32_t end = begin + work.tile.splits * kAttentionSplitTokens;
  const auto later = [](uint32_t a, uint32_t b) { return a < b ? b : a; };
  const auto sooner = [](uint32_t a, uint32_t b) { return a < b ? a : b; };
  work.seen_begin = later(begin, first_token_seen(layout, work.tile.position_min));
  work.seen_end = sooner(end, work.tile.position_max + 1);
  work.shared_begin = later(begin, first_token_seen(layout, work.tile.position_max));
  work.shared_end = sooner(end, work.tile.position_min + 1);
}

}  // namespace spillway::kernels::cuda
