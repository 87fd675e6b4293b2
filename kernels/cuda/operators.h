// The operators of a GPU: what each takes, and how to enqueue it. Plain types only: the device's
// host code includes this, and so do the kernels (one .cuh an operator, with its sketch).
//
// Every pointer is to device memory that belongs to the stream until the operator has run. A row's
// result depends on that row alone. Operators with rows or elements of none enqueue nothing.
// Each has a twin on the CPU and gives the same bits (of the levels with FMA), but for a NaN's: a
// NaN's bits are each side's own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_scaling.h"
#include "kernels/paged_kv.h"
#include "kernels/tensor_type.h"

struct CUstream_st;

namespace spillway::kernels::cuda {

// Twin: add() and rms_norm() of ops.h.
struct RmsNormArgs {
  float* y = nullptr;            // (row, n), rows y_stride floats apart; may be x
  float* x = nullptr;            // (row, n), rows x_stride apart; written only where `added` is set
  const float* added = nullptr;  // (row, n), rows added_stride apart: x += added first; or null
  const float* weight = nullptr;  // (n)
  size_t y_stride = 0;
  size_t x_stride = 0;
  size_t added_stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
  float eps = 0;
};

// Twin: rms_norm() and rope() of ops.h.
struct RopeArgs {
  float* x = nullptr;             // (row, head, head_dim), rows x_stride floats apart
  const float* angles = nullptr;  // (row, 2, dims): as rope_angles() of ops.h
  const float* weight = nullptr;  // (head_dim): each head's RMSNorm first; or null
  size_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t dims = 0;       // rotated, the first of a head; even
  bool in_halves = false;  // i turns with i + dims/2 (NeoX), else 2i with 2i+1
  float eps = 0;
};

enum class Gate : uint8_t { kSilu, kGelu };

// Twin: silu_mul() and gelu_mul() of ops.h.
struct GatedArgs {
  float* y = nullptr;           // (row, n), rows y_stride floats apart; may be gate or up
  const float* gate = nullptr;  // (row, n), rows stride apart
  const float* up = nullptr;    // the same
  size_t y_stride = 0;
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
  Gate kind = Gate::kSilu;
};

// Twin: add() of ops.h.
struct AddBiasArgs {
  float* x = nullptr;           // (row, n), rows `stride` floats apart: x += bias
  const float* bias = nullptr;  // (n)
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
};

// Copies row from[i] of x to row i of y. They must not overlap.
struct GatherRowsArgs {
  const float* x = nullptr;        // (row, n), rows x_stride floats apart
  const uint32_t* from = nullptr;  // (rows)
  float* y = nullptr;              // (rows, n), rows y_stride apart
  size_t x_stride = 0;
  size_t y_stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
};

// A PackedMatrix's panels in device memory.
struct DeviceMatrix {
  TensorType type = TensorType::kF32;
  // Panel p at p * panel_bytes; see packed_format.h. 16-byte aligned, each panel too.
  const std::byte* panels = nullptr;
  size_t panel_bytes = 0;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
};

// Twin: PackedMatrix::dequantize().
struct EmbeddingArgs {
  DeviceMatrix w;
  const int32_t* tokens = nullptr;  // (rows); each in [0, w.outputs)
  float* y = nullptr;               // (row, w.inputs), rows y_stride floats apart
  size_t y_stride = 0;
  uint32_t rows = 0;
  float scale = 1;  // of all elements (Gemma); 1: none
};

// As Activations (activations.h), in device memory.
struct DeviceActivations {
  uint32_t rows = 0;
  uint32_t inputs = 0;                // a multiple of 32
  int8_t* values = nullptr;           // (row, inputs), 16-byte aligned
  float* scales = nullptr;            // (row, block)
  float* scaled_sums = nullptr;       // (row, block): scale * sum of values
  float* half_scaled_sums = nullptr;  // (row, block, 2): per 16 inputs
};

// Twin: quantize_rows().
struct QuantizeArgs {
  const float* x = nullptr;  // (row, inputs), rows x_stride floats apart
  size_t x_stride = 0;
  DeviceActivations to;
};

// Twin: matmul_reference() with FMA.
struct MatmulArgs {
  DeviceMatrix w;  // quantised
  DeviceActivations x;
  float* y = nullptr;  // (x.rows, w.outputs), rows y_stride floats apart
  size_t y_stride = 0;
};

// The kernels for products. All give the same bits.
enum class MatmulKernel : uint8_t { kFew, kNarrow, kWide };

// The same product by a kernel that is not chosen for its rows: for tests, and to measure whether
// the choice is right.
struct MatmulByArgs {
  MatmulArgs product;
  MatmulKernel kernel = MatmulKernel::kFew;
};

// Twin: matmul_reference() with FMA.
struct MatmulFloatsArgs {
  DeviceMatrix w;            // F32, F16 or BF16
  const float* x = nullptr;  // (rows, w.inputs), rows x_stride floats apart
  float* y = nullptr;        // (rows, w.outputs), rows y_stride floats apart
  size_t x_stride = 0;
  size_t y_stride = 0;
  uint32_t rows = 0;
};

// The 16-bit floats that a library's products read (library_products.h).
enum class HalfType : uint8_t { kF16, kBf16 };

// Rows of a matrix out of its panels, rounded to 16 bits. Twin: PackedMatrix::dequantize().
struct UnpackArgs {
  DeviceMatrix w;             // not F32; inputs a multiple of 32
  uint32_t first_output = 0;  // a multiple of 16
  uint32_t outputs = 0;       // from there on
  uint16_t* to = nullptr;     // (outputs, w.inputs), 16-byte aligned
  HalfType type = HalfType::kBf16;
};

// Activations rounded to 16 bits. What F16 does not reach becomes its largest number; a NaN stays.
struct NarrowArgs {
  const float* x = nullptr;  // (row, n), rows x_stride floats apart
  uint16_t* to = nullptr;    // (row, n)
  size_t x_stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
  HalfType type = HalfType::kBf16;
};

// Twin: soft_cap() of ops.h.
struct SoftCapArgs {
  float* x = nullptr;  // (row, n), rows `stride` floats apart
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
  float cap = 1;
};

// Twin: argmax() of ops.h.
struct ArgmaxArgs {
  const float* x = nullptr;  // (row, n), rows `stride` floats apart
  size_t stride = 0;
  uint32_t rows = 0;
  uint32_t n = 0;          // at least 1
  uint32_t* to = nullptr;  // (row): the first of the greatest; 0 if all are NaN
};

// A layer group's pages in device memory.
struct DeviceKv {
  KvGroupLayout layout;
  std::byte* pages = nullptr;  // page p starts at pages + p * layout.page_bytes()
};

// One sequence's part of a step, as AttentionSequence in attention.h.
struct DeviceSequence {
  const PageId* table = nullptr;  // covers the last row
  uint32_t position = 0;          // of the first row
  uint32_t rows = 0;
  uint32_t first_row = 0;  // in k and v
};

// Twin: write_kv() of attention.h.
struct WriteKvArgs {
  DeviceKv kv;
  uint32_t layer = 0;
  const DeviceSequence* sequences = nullptr;  // (sequence_count), in device memory
  uint32_t sequence_count = 0;
  uint32_t pages_max = 0;    // that a sequence's rows touch, over all: pages_touched()
  const float* k = nullptr;  // (row, kv_head, head_dim), rows `stride` floats apart
  const float* v = nullptr;  // the same
  size_t stride = 0;
};

constexpr uint32_t pages_touched(const DeviceSequence& sequence, uint32_t page_tokens) {
  if (sequence.rows == 0) return 0;
  const uint32_t last = sequence.position + sequence.rows - 1;
  return last / page_tokens - sequence.position / page_tokens + 1;
}

// One row that attends. Its own K and V are in the pages already.
struct DeviceQuery {
  const PageId* table = nullptr;  // a page for every token that the row sees
  uint32_t position = 0;
  uint32_t row = 0;              // in q and out
  uint32_t first_own_split = 0;  // of the seen ones: tiles compute those before it
};

// Queries that attend together, over splits whose pages they share: the next rows of one sequence,
// or rows of several that begin alike. attention_tiles.h makes them.
struct DeviceTile {
  uint32_t first_query = 0;  // of the queries; its table is read for all
  uint32_t query_count = 0;  // at most tile_queries()
  uint32_t first_split = 0;  // absolute; of the seen ones, of any of the queries
  uint32_t splits = 0;
  uint32_t position_min = 0;  // of the queries
  uint32_t position_max = 0;
  bool whole = false;  // these are all the splits that the queries see: no merge is left
};

// Twin: reference::attend() with FMA.
struct AttentionArgs {
  DeviceKv kv;
  AttentionScaling scaling;
  uint32_t heads = 0;  // query heads, a multiple of the layout's kv_heads
  uint32_t layer = 0;
  const DeviceQuery* queries = nullptr;  // (query_count), in device memory
  uint32_t query_count = 0;
  uint32_t splits_max = 0;   // of a query, over all: splits_seen()
  const float* q = nullptr;  // (row, head, head_dim), rows q_stride floats apart
  float* out = nullptr;      // the same shape, rows out_stride floats apart
  size_t q_stride = 0;
  size_t out_stride = 0;
  // Scratch, for one layer at a time: what each split has summed.
  float* partial_sums = nullptr;  // (query, head, split, {maximum, sum})
  float* partial_outs = nullptr;  // (query, head, split, head_dim), 8-byte aligned
};

// The same, with tiles. Queries stand in this order: those with splits of their own; then those
// that tiles compute, but leave to be merged; then those that whole tiles compute, which need no
// scratch. Apart from AttentionArgs because the registers of the kernel for single queries hang on
// the size of what it is given.
struct TiledAttentionArgs {
  AttentionArgs rows;
  const DeviceTile* tiles = nullptr;  // (tile_count), in device memory. REQUIRES: tiles_take()
  uint32_t tile_count = 0;
  uint32_t tiled_queries = 0;  // the last of the queries, which have no splits of their own
  uint32_t whole_queries = 0;  // the last of those
};

// Whether tiles can be made of pages of this layout.
constexpr bool tiles_take(const KvGroupLayout& layout) {
  return layout.head_dim % 8 == 0 && layout.head_dim <= 256;
}

// Rows (query, head of the group) of a tile, and the queries and heads that make them.
constexpr uint32_t tile_rows(uint32_t head_dim) { return head_dim <= 128 ? 64 : 32; }
constexpr uint32_t tile_heads(const KvGroupLayout& layout, uint32_t heads) {
  const uint32_t group = heads / layout.kv_heads;
  return group < tile_rows(layout.head_dim) ? group : tile_rows(layout.head_dim);
}
constexpr uint32_t tile_queries(const KvGroupLayout& layout, uint32_t heads) {
  return tile_rows(layout.head_dim) / tile_heads(layout, heads);
}

// The first token that a query at `position` sees.
constexpr uint32_t first_token_seen(const KvGroupLayout& layout, uint32_t position) {
  return layout.window != 0 && position >= layout.window ? position - layout.window + 1 : 0;
}

// Splits from the first seen token's to the query's own.
constexpr uint32_t splits_seen(const KvGroupLayout& layout, uint32_t position) {
  return position / kAttentionSplitTokens -
         first_token_seen(layout, position) / kAttentionSplitTokens + 1;
}

// Each enqueues its kernels on the stream, from any thread, and returns the first error of that: a
// cudaError_t, 0 for none. What fails as it runs shows where the stream is next looked at.
int rms_norm(CUstream_st* stream, const RmsNormArgs& args);
int rope(CUstream_st* stream, const RopeArgs& args);
int gated(CUstream_st* stream, const GatedArgs& args);
int add_bias(CUstream_st* stream, const AddBiasArgs& args);
int gather_rows(CUstream_st* stream, const GatherRowsArgs& args);
int embedding(CUstream_st* stream, const EmbeddingArgs& args);
int quantize(CUstream_st* stream, const QuantizeArgs& args);
int matmul(CUstream_st* stream, const MatmulArgs& args);
int matmul_by(CUstream_st* stream, const MatmulByArgs& args);
int matmul_floats(CUstream_st* stream, const MatmulFloatsArgs& args);
int unpack(CUstream_st* stream, const UnpackArgs& args);
int narrow(CUstream_st* stream, const NarrowArgs& args);
int soft_cap(CUstream_st* stream, const SoftCapArgs& args);
int argmax(CUstream_st* stream, const ArgmaxArgs& args);
int write_kv(CUstream_st* stream, const WriteKvArgs& args);
int attention(CUstream_st* stream, const AttentionArgs& args);
int tiled_attention(CUstream_st* stream, const TiledAttentionArgs& args);

}  // namespace spillway::kernels::cuda
