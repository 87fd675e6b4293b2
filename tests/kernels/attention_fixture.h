// Sequences over a pool of scattered pages, for the tests of attention: what is not written, not
// owned or behind a window is NaN, so that reading it shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_reference.h"
#include "tests/kernels/test_team.h"

namespace spillway::kernels {

struct AttentionCase {
  KvGroupLayout layout;
  AttentionShape shape;
  CpuLevel level = CpuLevel::kBaseline;
  uint32_t workers = 1;
};

// q, k and v of `tokens` tokens, the same for the same seed.
struct TokenRows {
  TokenRows(const AttentionCase& setup, uint32_t token_count, uint32_t seed)
      : tokens(token_count),
        q_stride(size_t{setup.shape.heads} * setup.layout.head_dim + 3),
        kv_stride(size_t{setup.layout.kv_heads} * setup.layout.head_dim + 5) {
    uint64_t state = seed;
    const auto fill = [&](std::vector<float>& to, size_t stride) {
      to.resize(stride * tokens);
      for (float& value : to) {  // uniform in [-3, 3)
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<float>(static_cast<int32_t>(state >> 32)) * (3 * 0x1p-31f);
      }
    };
    fill(q, q_stride);
    fill(k, kv_stride);
    fill(v, kv_stride);
  }

  uint32_t tokens;
  size_t q_stride;
  size_t kv_stride;
  std::vector<float> q, k, v;
};

// Pages of one layer group, all NaN at first, given out in a random order.
class PagePoolFixture {
 public:
  PagePoolFixture(const KvGroupLayout& layout, uint32_t pages, uint32_t seed)
      : layout_(layout), bytes_(layout.page_bytes() * pages), free_(pages) {
    std::memset(bytes_.data(), 0xff, bytes_.size());  // NaN in all three types
    for (uint32_t i = 0; i < pages; ++i) free_[i] = PageId{i};
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
  }
  PageId take() {
    const PageId page = free_.back();
    free_.pop_back();
    return page;
  }
  // Poisons the page; what still named it must not be read again.
  void give_back(PageId page) {
    std::memset(at(page), 0xff, layout_.page_bytes());
    free_.insert(free_.begin(), page);
  }
  std::byte* at(PageId page) {
    return bytes_.data() + static_cast<size_t>(page) * layout_.page_bytes();
  }
  std::byte* data() { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  KvGroupLayout layout_;
  std::vector<std::byte> bytes_;
  std::vector<PageId> free_;
};

// One sequence: its table grows as tokens come, and pages behind the window go.
class PagedSequence {
 public:
  PagedSequence(const AttentionCase& setup, PagePoolFixture& pool) : setup_(setup), pool_(pool) {}

  // The next `rows` tokens' part of a step; first_row as in the step's q, k, v.
  AttentionSequence next(uint32_t rows, uint32_t first_row) {
    const KvGroupLayout& layout = setup_.layout;
    while (table_.size() * layout.page_tokens < position_ + rows) table_.push_back(pool_.take());
    if (layout.window != 0 && position_ + 1 > layout.window) {
      const uint32_t seen = position_ + 1 - layout.window;  // by the first new row
      for (uint32_t p = 0; p < seen / layout.page_tokens; ++p) drop(p);
    }
    const AttentionSequence part{
        .kv = kv(), .position = position_, .rows = rows, .first_row = first_row};
    position_ += rows;
    return part;
  }
  PagedKv kv() const { return {&setup_.layout, pool_.data(), table_}; }
  uint32_t position() const { return position_; }

 private:
  void drop(uint32_t index) {
    if (table_[index] == kNoPage) return;
    pool_.give_back(table_[index]);
    table_[index] = kNoPage;
  }

  const AttentionCase& setup_;
  PagePoolFixture& pool_;
  std::vector<PageId> table_;
  uint32_t position_ = 0;
};

// One step of one layer: writes K and V, then attends; `out` has the shape of rows.q.
inline void run_step(const AttentionCase& setup, std::span<const AttentionSequence> sequences,
                     uint32_t layer, const TokenRows& rows, size_t first, float* out) {
  AttentionPlan plan(setup.level, setup.layout, setup.shape);
  plan.prepare(sequences, setup.workers);
  run_team(setup.workers, [&](Team& team) {
    write_kv(setup.level, team, sequences, layer,
             {.k = rows.k.data() + first * rows.kv_stride,
              .v = rows.v.data() + first * rows.kv_stride,
              .stride = rows.kv_stride});
    team.barrier();
    plan.run(team, layer,
             {.q = rows.q.data() + first * rows.q_stride,
              .out = out,
              .q_stride = rows.q_stride,
              .out_stride = rows.q_stride});
  });
}

// Runs all tokens of one sequence in the chunks given (the last is whatever is left).
inline std::vector<float> run_chunks(const AttentionCase& setup, const TokenRows& rows,
                                     const std::vector<uint32_t>& chunks, uint32_t seed) {
  const uint32_t pages = rows.tokens / setup.layout.page_tokens + 4;
  PagePoolFixture pool(setup.layout, pages, seed);
  PagedSequence sequence(setup, pool);
  std::vector<float> out(rows.q.size());
  const uint32_t layer = seed % setup.layout.layers;
  size_t index = 0;
  while (sequence.position() < rows.tokens) {
    const uint32_t left = rows.tokens - sequence.position();
    const uint32_t count = index < chunks.size() ? std::min(chunks[index++], left) : left;
    const uint32_t first = sequence.position();
    const AttentionSequence part[] = {sequence.next(count, 0)};
    run_step(setup, part, layer, rows, first, out.data() + first * rows.q_stride);
  }
  return out;
}

// Where two results differ in the heads' columns, as a row number; -1 if nowhere. The padding
// between rows is not compared.
inline int first_difference(const AttentionCase& setup, const TokenRows& rows,
                            const std::vector<float>& a, const std::vector<float>& b) {
  const size_t bytes = size_t{setup.shape.heads} * setup.layout.head_dim * sizeof(float);
  for (uint32_t t = 0; t < rows.tokens; ++t) {
    const size_t at = t * rows.q_stride;
    if (std::memcmp(a.data() + at, b.data() + at, bytes) != 0) return static_cast<int>(t);
  }
  return -1;
}

}  // namespace spillway::kernels
