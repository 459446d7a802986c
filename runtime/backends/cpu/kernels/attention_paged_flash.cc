// attention_paged in f32, over pages of f32, f16, bf16 or q8_0: the tiles and spans of attention_flash.cc, of the tokens of one
// sequence at a time. A token has the same bits whatever other tokens the launch has.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "graph/base/blocks/block_layout.h"
#include "runtime/backends/cpu/kernels/attention_shape.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/paged_keys.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/attention_paged_flash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/attention_spans-inl.h"
#include "runtime/backends/cpu/kernels/bf16_vectors-inl.h"

#ifndef TSR_ATTENTION_PAGED_FLASH_CC_ONCE_
#define TSR_ATTENTION_PAGED_FLASH_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kMaxPagedHead = 1024;  // D and V, latent vectors: the tiles of a task are at most 1.3 MiB

int64_t up_to_16(int64_t count) { return (count + 15) / 16 * 16; }

// TokenTile: tokens of one sequence that follow one another in the launch; with the queries of a key-value head's group
// they are at most kTileQueries rows.
struct TokenTile {
  int32_t first, count;
  int32_t spans;       // of its keys, at least 1
  int32_t first_unit;  // units before it: a unit is a span of a key-value head
};

// PagedWorkspace: the tiles, and the result of each span if spans are distributed.
struct PagedWorkspace {
  static constexpr int64_t kMostFloats = int64_t{1} << 20;  // of results of spans

  int64_t tokens, rows, width, KV, most_spans;  // rows: of a tile at most
  int64_t sequences;                            // rows of the table

  PagedWorkspace(const AttentionShape& e, int64_t most_keys, int64_t sequences)
      : tokens(e.T),
        rows(std::min(kTileQueries, e.T * e.group())),
        width((e.V + 31) / 32 * 32),  // for any instruction set
        KV(e.KV),
        most_spans(std::max<int64_t>((most_keys + kSpanKeys - 1) / kSpanKeys, 1)),
        sequences(sequences) {}

  int64_t unit_floats() const { return rows * width + 2 * up_to_16(rows); }
  // For one tile per sequence; launches with more tiles have enough tasks without spans.
  int64_t units() const {
    return std::min(std::min(tokens, sequences) * KV * most_spans,
                    std::max<int64_t>(kMostFloats / unit_floats(), 1));
  }
  int64_t tile_bytes() const { return 4 * up_to_16(4 * tokens); }
  int64_t done_bytes() const { return 4 * up_to_16(tokens * KV); }
  int64_t bytes() const { return tile_bytes() + done_bytes() + 4 * units() * unit_floats(); }

  TokenTile* tiles(void* memory) const { return static_cast<TokenTile*>(memory); }
  int32_t* done(void* memory) const {
    return reinterpret_cast<int32_t*>(static_cast<std::byte*>(memory) + tile_bytes());
  }
  float* out(void* memory, int64_t unit) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(memory) + tile_bytes() + done_bytes()) +
           unit * unit_floats();
  }
  float* top(void* memory, int64_t unit) const { return out(memory, unit) + rows * width; }
  float* sum(void* memory, int64_t unit) const { return top(memory, unit) + up_to_16(rows); }
};

// The queries of a key-value head are cut in `parts`, each at most the rows of a tile, with a number of its own: number
// kv * parts + i is part i of head kv. AttentionShape::KV counts them.
struct PagedBuffers {
  const float* q;
  const void *k, *v;  // pages; the same where values are the first numbers of keys
  DType dtype;        // of them
  int64_t parts;
  PagedTokens tokens;
  float *out, *lse;  // lse may be null
  void* workspace;

  TileKeys keys_of(const AttentionShape& e, const TokenTile& tile) const {
    return TileKeys(tile.count * e.group(),
                    [&](int64_t i) { return tokens.keys(tile.first + i / e.group()); });
  }
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Widens `count` / 32 blocks: the product of a code and the scale is exact in f32.
void widen_q8_0_row(const std::byte* in, float* out, int64_t count) {
  const DF d;
  const hn::Rebind<int32_t, DF> d32;
  const hn::Rebind<int8_t, DF> d8;
  constexpr int64_t kBlock = BlockQ8_0::kElements;
  for (int64_t i = 0; i < count; i += kBlock, in += sizeof(BlockQ8_0)) {
    uint16_t bits;
    std::memcpy(&bits, in, sizeof bits);
    const VF scale = hn::Set(d, f32_from_f16(bits));
    const auto* const codes = reinterpret_cast<const int8_t*>(in + offsetof(BlockQ8_0, codes));
    for (int64_t j = 0; j < kBlock; j += kLanes)
      hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes + j))), scale), d,
                 out + i + j);
  }
}

void widen_row(DType from, const std::byte* row, float* out, int64_t count) {
  if (from == DType::kQ8_0) return widen_q8_0_row(row, out, count);
  const auto* const in = reinterpret_cast<const uint16_t*>(row);
  if (from == DType::kBF16) return widen_bf16_row(in, out, count);
  const DF d;
  const hn::Rebind<hwy::float16_t, DF> d16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(in + i))), d, out + i);
  for (; i < count; ++i) out[i] = f32_from_f16(in[i]);
}

// Keys and values of one sequence and head in pages, whose slots are multiples of kTileKeys.
struct PagedKeys {
  const AttentionShape& e;
  const PagedBuffers& x;
  int64_t row, kv;  // kv: a head of the pages
  float* wide;      // [kTileKeys][the larger of D and V], for pages that are not f32

  bool has(int64_t s, int64_t) const { return x.tokens.slot(row, s) >= 0; }
  const int32_t* segments() const { return nullptr; }
  // Rows of `size` elements of `pages` from position s in f32: their address, and their distance.
  std::pair<const float*, int64_t> rows(const void* pages, int64_t size, int64_t s, int64_t block) const {
    const int64_t heads = e.KV / x.parts, first = x.tokens.slot(row, s) * heads + kv;
    if (x.dtype == DType::kF32) return {static_cast<const float*>(pages) + first * size, heads * size};
    const int64_t row_bytes = dtype_bytes(x.dtype, size);
    const auto* from = static_cast<const std::byte*>(pages) + first * row_bytes;
    for (int64_t i = 0; i < block; ++i, from += heads * row_bytes)
      widen_row(x.dtype, from, wide + i * size, size);
    return {wide, size};
  }
  void pack(int64_t s, int64_t block, float* keys) const {
    const auto [at, stride] = rows(x.k, e.D, s, block);
    // The page behind the block may be read; the widened copy ends with the block.
    const int64_t there = x.dtype == DType::kF32 ? x.tokens.page - s % x.tokens.page : block;
    pack_keys(at, stride, block, there, e.D, keys);
  }
  // Values of the last packed block.
  KeyRows values(int64_t s, int64_t block, float* copy) const {
    const bool is_wide = x.k == x.v && x.dtype != DType::kF32;  // the keys' rows are still there
    const auto [at, stride] =
        is_wide ? std::pair<const float*, int64_t>(wide, e.D) : rows(x.v, x.k == x.v ? e.D : e.V, s, block);
    return KeyRows(at, stride, block, e.V, padded(e.V, kPanel), copy);
  }
};

// Calls body(source, rows, query, scratch) for the rows of (tile, kv), with `more` floats of scratch.
template <class Body>
void with_rows(const AttentionShape& e, const PagedBuffers& x, const Pool& pool, const TokenTile& tile,
               int64_t kv, const TileKeys& seen, int64_t more, Body body) {
  const int64_t rows = tile.count * e.group();
  const int64_t of_q = up_to_16(rows * padded(e.D, kPanel));
  const int64_t of_wide = x.dtype == DType::kF32 ? 0 : up_to_16(kTileKeys * std::max(e.D, e.V));
  const auto query = [&](int64_t i) { return e.query(0, kv, tile.first * e.group() + i); };
  Scratch scratch(pool, of_q + of_wide + more);
  const RowTile tile_rows(e, x.q, seen, rows, query, scratch.floats(of_q));
  body(PagedKeys{e, x, x.tokens.row[tile.first], kv / x.parts, scratch.floats(of_wide)}, tile_rows, query,
       scratch);
}

void attend_token_tile(const AttentionShape& e, const PagedBuffers& x, const Pool& pool,
                       const TokenTile& tile, int64_t kv) {
  const TileKeys seen = x.keys_of(e, tile);
  with_rows(e, x, pool, tile, kv, seen, tile_scratch_floats(e),
            [&](const PagedKeys& source, const RowTile& rows, const auto& query, Scratch& scratch) {
              attend_tile(e, source, rows, query, scratch, x.out, x.lse);
            });
}

// A span of the rows of (tile, kv). The last of them that is done merges all.
void attend_unit(const AttentionShape& e, const PagedBuffers& x, const PagedWorkspace& workspace,
                 const Pool& pool, const TokenTile* tiles, int64_t tile, int64_t unit) {
  const TokenTile& of = tiles[tile];
  const TileKeys seen = x.keys_of(e, of);
  const int64_t kv = (unit - of.first_unit) / of.spans, first = unit - (unit - of.first_unit) % of.spans;
  const int64_t of_keys = up_to_16(kTileKeys * std::max(padded(e.D, kPanel), padded(e.V, kPanel)));
  const auto top = [&](int64_t i) { return workspace.top(x.workspace, i); };
  const auto sum = [&](int64_t i) { return workspace.sum(x.workspace, i); };
  const auto out = [&](int64_t i) { return workspace.out(x.workspace, i); };
  with_rows(e, x, pool, of, kv, seen, of_keys + kTileQueries * kTileKeys,
            [&](const PagedKeys& source, const RowTile& rows, const auto& query, Scratch& scratch) {
              float* const keys = scratch.floats(of_keys);
              float* const scores = scratch.floats(kTileQueries * kTileKeys);
              attend_span(e, source, rows, seen.first_span() + unit - first, keys, scores, top(unit),
                          sum(unit), out(unit));
              std::atomic_ref<int32_t> done(workspace.done(x.workspace)[tile * e.KV + kv]);
              if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < of.spans) return;
              for (int64_t i = first + 1; i < first + of.spans; ++i)
                merge_span(rows, top(i), sum(i), out(i), top(first), sum(first), out(first));
              store_rows(e, rows, query, top(first), sum(first), out(first), x.out, x.lse);
            });
}

// Cuts the tokens into tiles; the number of them.
int64_t cut_tiles(const AttentionShape& e, const PagedBuffers& x, TokenTile* tiles) {
  const int64_t most = std::max<int64_t>(kTileQueries / e.group(), 1);
  int64_t count = 0, units = 0;
  for (int64_t token = 0; token < e.T;) {
    TokenTile& tile = tiles[count++];
    tile = {static_cast<int32_t>(token), 0, 0, static_cast<int32_t>(units)};
    while (token < e.T && tile.count < most && x.tokens.row[token] == x.tokens.row[tile.first])
      ++tile.count, ++token;
    const TileKeys seen = x.keys_of(e, tile);
    tile.spans = static_cast<int32_t>(seen.end_span() - seen.first_span());
    units += tile.spans * e.KV;
  }
  return count;
}

void attention_paged(const AttentionShape& e, const PagedBuffers& x, const Pool& pool) {
  if (e.T * e.H == 0) return;
  const PagedWorkspace workspace(e, x.tokens.most_keys(), x.tokens.rows);
  // The end of the planned bytes is touched by every run.
  static_cast<std::byte*>(x.workspace)[workspace.bytes() - 1] = std::byte{0};
  TokenTile* const tiles = workspace.tiles(x.workspace);
  const int64_t count = cut_tiles(e, x, tiles);
  const TokenTile& last = tiles[count - 1];
  const int64_t units = last.first_unit + last.spans * e.KV;
  if (units > workspace.units()) {
    // The last tiles of a sequence see the most keys: they go first.
    pool.parallel_for(count * e.KV, [&](int64_t task) {
      attend_token_tile(e, x, pool, tiles[count - 1 - task / e.KV], task % e.KV);
    });
    return;
  }
  std::fill_n(workspace.done(x.workspace), count * e.KV, 0);
  pool.parallel_for(units, [&](int64_t unit) {
    const TokenTile* const after = std::upper_bound(
        tiles, tiles + count, unit, [](int64_t at, const TokenTile& tile) { return at < tile.first_unit; });
    attend_unit(e, x, workspace, pool, tiles, after - tiles - 1, unit);
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(attention_paged);

// q [B, T, H, D], k_pages [P, S, KV, D], v_pages [P, S, KV, V] where the keys' do not hold the values, table [R, M], row,
// position [B, T] -> out [B, T, H, V] (, lse [B, T, H]).
Result<PreparedKernel> prepare_attention_paged_flash(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  if (spec.input_dtype(0) != DType::kF32) return Status(StatusCode::kUnsupported, "queries that are not f32");
  const auto q = spec.input_dims(0), k = spec.input_dims(1);
  if (k[1] % kTileKeys != 0)
    return Status(StatusCode::kUnsupported,
                  format("pages of {} slots: wanted a multiple of {}", k[1], kTileKeys));
  const PagedValues values(spec);
  const PagedTokens paged = PagedTokens::from_spec(spec, 1, values.operand + 1);
  AttentionShape e{1,
                   q[0] * q[1],
                   q[2],
                   paged.most_keys(),
                   k[2],
                   q[3],
                   values.width,
                   {},
                   0,
                   static_cast<float>(spec.f64("softcap")),
                   false};
  e.mask.window = paged.window;
  TSR_RETURN_IF_ERROR(finish_shape(e, spec, kMaxPagedHead));
  if (e.H == 0) return Status(StatusCode::kUnsupported, "no heads");
  const AttentionShape whole = e;
  int64_t parts = 1;
  while (e.group() % parts != 0 || e.group() / parts > kTileQueries) ++parts;
  e.KV *= parts;
  const bool has_lse = spec.output_count() == 2;
  const DType dtype = spec.input_dtype(1);
  PreparedKernel prepared = prepared_attention(whole, make_kernel([=](const LaunchArgs& args) {
                                                 const PagedBuffers x{args.in<float>(0),
                                                                      args.inputs[1],
                                                                      args.inputs[values.operand],
                                                                      dtype,
                                                                      parts,
                                                                      paged.with(args, values.operand + 1),
                                                                      args.out<float>(0),
                                                                      has_lse ? args.out<float>(1) : nullptr,
                                                                      args.workspace};
                                                 HWY_DYNAMIC_DISPATCH(attention_paged)(e, x, args.pool);
                                               }),
                                               1, 1);
  if (e.T > 0) prepared.workspace_bytes = PagedWorkspace(e, e.S, paged.rows).bytes();
  return prepared;
}

}  // namespace tessera::cpu
#endif
