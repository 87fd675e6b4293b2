#include "kernels/cuda/attention_tiles.h"

#include <algorithm>
#include <tuple>

#include "runtime/check.h"

namespace spillway::kernels::cuda {
namespace {

// A row of its own, with what is known of its pages on the host.
struct Row {
  std::span<const PageId> pages;
  DeviceQuery query;
};

class Planner {
 public:
  Planner(const KvGroupLayout& layout, uint32_t heads, const TileLimits& limits)
      : layout_(layout),
        heads_(heads),
        limits_(limits),
        tile_queries_(tile_queries(layout, heads)) {}

  AttentionTilePlan run(std::span<const TiledSequence> sequences) {
    std::vector<const TiledSequence*> prompts;
    for (const TiledSequence& sequence : sequences) {
      CHECK(sequence.pages.size() * layout_.page_tokens >= sequence.position + sequence.rows);
      if (fills_half(sequence.rows)) {
        prompts.push_back(&sequence);
      } else {
        for (uint32_t i = 0; i < sequence.rows; ++i)
          rows_.push_back({sequence.pages, query(sequence, i)});
      }
    }
    if (tiles_take(layout_) && layout_.window == 0) share_prefixes();
    for (const Row& row : rows_) add_query(row.query);
    add_prompts(prompts);
    std::sort(plan_.tiles.begin(), plan_.tiles.end(), [this](const auto& a, const auto& b) {
      return std::tuple(cost(b), a.first_query, a.first_split) <
             std::tuple(cost(a), b.first_query, b.first_split);
    });
    return std::move(plan_);
  }

 private:
  bool fills_half(uint32_t queries) const { return attends_in_tiles(layout_, heads_, queries); }

  static DeviceQuery query(const TiledSequence& sequence, uint32_t i) {
    return {.table = sequence.table,
            .position = sequence.position + i,
            .row = sequence.first_row + i,
            .first_own_split = 0};
  }

  void add_query(const DeviceQuery& query) {
    plan_.queries.push_back(query);
    plan_.splits_max = std::max(plan_.splits_max, splits_seen(layout_, query.position));
  }

  // In tokens that any of its rows sees.
  uint64_t cost(const DeviceTile& tile) const {
    const uint64_t begin = std::max(tile.first_split * kAttentionSplitTokens,
                                    first_token_seen(layout_, tile.position_min));
    const uint64_t end =
        std::min((tile.first_split + tile.splits) * kAttentionSplitTokens, tile.position_max + 1);
    return end - begin;
  }

  // --- sequences of many rows

  uint32_t tiles_of(uint32_t rows) const { return (rows + tile_queries_ - 1) / tile_queries_; }

  void add_prompts(std::span<const TiledSequence* const> prompts) {
    uint64_t tiles = 0, partials = 0;
    uint32_t splits_max = plan_.splits_max;
    for (const TiledSequence* prompt : prompts) {
      tiles += tiles_of(prompt->rows);
      partials += prompt->rows;
      for (uint32_t i = 0; i < prompt->rows; ++i) {
        splits_max = std::max(splits_max, splits_seen(layout_, prompt->position + i));
      }
    }
    const uint64_t chunks =
        (heads_ / layout_.kv_heads + tile_heads(layout_, heads_) - 1) / tile_heads(layout_, heads_);
    const bool whole = tiles * layout_.kv_heads * chunks >= limits_.blocks_wanted ||
                       (plan_.queries.size() + partials) * splits_max > limits_.partials_max;
    for (const TiledSequence* prompt : prompts) add_prompt(*prompt, whole);
    plan_.tiled_queries = static_cast<uint32_t>(partials);
    if (whole) plan_.whole_queries = plan_.tiled_queries;
  }

  void add_prompt(const TiledSequence& prompt, bool whole) {
    const uint32_t tiles = tiles_of(prompt.rows);
    for (uint32_t i = 0; i < tiles; ++i) {
      const uint32_t first = static_cast<uint32_t>(uint64_t{prompt.rows} * i / tiles);
      const uint32_t end = static_cast<uint32_t>(uint64_t{prompt.rows} * (i + 1) / tiles);
      DeviceTile tile{.first_query = static_cast<uint32_t>(plan_.queries.size()),
                      .query_count = end - first,
                      .position_min = prompt.position + first,
                      .position_max = prompt.position + end - 1,
                      .whole = whole};
      for (uint32_t row = first; row < end; ++row) {
        if (whole) {
          plan_.queries.push_back(query(prompt, row));
        } else {
          add_query(query(prompt, row));
        }
      }
      const uint32_t begin_split =
          first_token_seen(layout_, tile.position_min) / kAttentionSplitTokens;
      const uint32_t end_split = tile.position_max / kAttentionSplitTokens + 1;
      const uint32_t step = whole ? end_split - begin_split : 1;
      for (uint32_t split = begin_split; split < end_split; split += step) {
        tile.first_split = split;
        tile.splits = step;
        plan_.tiles.push_back(tile);
      }
    }
  }

  // --- rows that begin alike

  // Splits that the row sees whole.
  static uint32_t full_splits(const Row& row) {
    return (row.query.position + 1) / kAttentionSplitTokens;
  }

  std::span<const PageId> pages_of(const Row& row, uint32_t splits) const {
    const uint32_t tokens = splits * kAttentionSplitTokens;
    return row.pages.first((tokens + layout_.page_tokens - 1) / layout_.page_tokens);
  }

  // Whole splits that lie in the same pages of both.
  uint32_t shared_splits(const Row& a, const Row& b) const {
    const uint32_t most = std::min(full_splits(a), full_splits(b));
    const auto pages = pages_of(a, most);
    const auto others = pages_of(b, most);
    const auto parted = std::mismatch(pages.begin(), pages.end(), others.begin()).first;
    if (parted == pages.end()) return most;
    const auto same = static_cast<uint32_t>(parted - pages.begin());
    return same * layout_.page_tokens / kAttentionSplitTokens;
  }

  // Orders the rows such that those that share most stand together, and makes their tiles.
  void share_prefixes() {
    std::sort(rows_.begin(), rows_.end(), [this](const Row& a, const Row& b) {
      const auto pages = pages_of(a, full_splits(a));
      const auto others = pages_of(b, full_splits(b));
      return std::lexicographical_compare(pages.begin(), pages.end(), others.begin(), others.end());
    });
    std::vector<uint32_t> shared(rows_.size(), 0);  // with the row before
    for (size_t i = 1; i < rows_.size(); ++i) shared[i] = shared_splits(rows_[i - 1], rows_[i]);
    std::vector<Run> runs = {{0, static_cast<uint32_t>(rows_.size()), 0}};
    while (!runs.empty()) {
      const Run run = runs.back();
      runs.pop_back();
      share(run, shared, runs);
    }
  }

  // Rows [first, end), whose splits before `done` have their tiles.
  struct Run {
    uint32_t first = 0;
    uint32_t end = 0;
    uint32_t done = 0;
  };

  // Makes the tiles of what all of a run share, and cuts it where they share the least.
  void share(const Run& run, std::span<const uint32_t> shared, std::vector<Run>& runs) {
    if (run.end - run.first < 2 || !fills_half(run.end - run.first)) return;
    const auto within = shared.subspan(run.first + 1, run.end - run.first - 1);
    const uint32_t least = *std::min_element(within.begin(), within.end());
    for (uint32_t split = run.done; split < least; ++split) add_shared(run, split);
    uint32_t first = run.first;
    for (uint32_t i = run.first + 1; i <= run.end; ++i) {
      if (i < run.end && shared[i] > least) continue;
      runs.push_back({first, i, least});
      first = i;
    }
  }

  void add_shared(const Run& run, uint32_t split) {
    const uint32_t count = run.end - run.first;
    const uint32_t tiles = tiles_of(count);
    for (uint32_t i = 0; i < tiles; ++i) {
      const uint32_t first = run.first + static_cast<uint32_t>(uint64_t{count} * i / tiles);
      const uint32_t end = run.first + static_cast<uint32_t>(uint64_t{count} * (i + 1) / tiles);
      DeviceTile tile{.first_query = first,
                      .query_count = end - first,
                      .first_split = split,
                      .splits = 1,
                      .position_min = rows_[first].query.position,
                      .position_max = rows_[first].query.position};
      for (uint32_t row = first; row < end; ++row) {
        DeviceQuery& query = rows_[row].query;
        query.first_own_split = split + 1;
        tile.position_min = std::min(tile.position_min, query.position);
        tile.position_max = std::max(tile.position_max, query.position);
      }
      plan_.tiles.push_back(tile);
    }
  }

  const KvGroupLayout& layout_;
  uint32_t heads_;
  TileLimits limits_;
  uint32_t tile_queries_;
  std::vector<Row> rows_;  // queries first_query counts these, as they come first
  AttentionTilePlan plan_;
};

}  // namespace

bool attends_in_tiles(const KvGroupLayout& layout, uint32_t heads, uint32_t rows) {
  return tiles_take(layout) &&
         2 * uint64_t{rows} * tile_heads(layout, heads) >= tile_rows(layout.head_dim);
}

AttentionTilePlan plan_attention_tiles(const KvGroupLayout& layout, uint32_t heads,
                                       std::span<const TiledSequence> sequences,
                                       const TileLimits& limits) {
  CHECK(heads % layout.kv_heads == 0);
  return Planner(layout, heads, limits).run(sequences);
}

}  // namespace spillway::kernels::cuda
