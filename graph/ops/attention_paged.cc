// attention_paged(q, k_pages, v_pages, table, row, position): causal attention of tokens of many sequences over keys and
// values in pages. Token (b, t) is at position p = position[b, t] of sequence r = row[b, t]; it sees the positions s up to
// p, with a window those less than that far back, whose key is slot s mod S of page table[r, s / S] ("PagedAttention",
// Kwon et al., 2023). What is not there (no such row, page or entry of the table) is not seen; a token that sees nothing
// gives 0 and lse -inf.
//   q [B, T, H, D], k_pages [P, S, KV, D], v_pages [P, S, KV, V], table [R, M] i32, row, position [B, T] i32
//   -> out [B, T, H, V], and with with_lse = 1 lse [B, T, H] as attention has it.
// With value_width = V there is no operand v_pages, and KV is 1: values are the first V numbers of each key, as where pages
// hold the latent vector of multi-head latent attention (DeepSeek-V2, section 2.1).
// Pages are of q's type, of 16-bit floats where q is f32, or of q8_0 (blocks of 32 along D and V). For serving: no
// gradient.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/attention_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "attention_paged";
const AttrSpec kAttrs[] = {
    {"scale", AttrType::kF64, 0.0, "factor of the scores; 0: 1/sqrt(D)"},
    window_spec(),
    softcap_spec(),
    {.name = "with_lse",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{0}),
     .meaning = "1: a second result, the log of each sum"},
    {.name = "value_width",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{0}),
     .meaning = "V: values are the first V numbers of keys, without v_pages; 0: they are in v_pages",
     .is_late = true},
};

bool has_value_pages(Attrs attrs) { return attr_i64(attrs, "value_width") == 0; }

// The pages of values; their type follows from the keys' where they share pages.
TensorType value_pages(Types in, Attrs attrs) {
  if (has_value_pages(attrs)) return in[2];
  TensorType values = in[1];
  values.shape.set(3, attr_i64(attrs, "value_width"));
  return values;
}

Status check_shared_pages(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "k_pages", 2, 1));
  const int64_t width = attr_i64(attrs, "value_width"), most = in[1].shape[3];
  if (width >= 0 && width <= most) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("{}: value_width is {}, wanted 1 to the width of k_pages {}, or 0 for values in pages of "
             "their own",
             kName, width, in[1]));
}

Inferred attention_paged_infer(Types in, Attrs attrs) {
  const int table = has_value_pages(attrs) ? 3 : 2;
  TSR_RETURN_IF_ERROR(check_count(kName, in, table + 3));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "with_lse"));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "q"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "q", 4));
  TSR_RETURN_IF_ERROR(check_pages(kName, in, 1, "k_pages", in[0].dtype));
  if (has_value_pages(attrs)) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "v_pages", in[1].dtype));
    TSR_RETURN_IF_ERROR(check_rank(kName, in, 2, "v_pages", 4));
    TSR_RETURN_IF_ERROR(check_extent(kName, in, 2, "v_pages", 0, in[1].shape[0]));
  } else {
    TSR_RETURN_IF_ERROR(check_shared_pages(in, attrs));
  }
  // As for attention over whole keys, of one batch.
  TensorType k = in[1], v = value_pages(in, attrs);
  k.dtype = v.dtype = in[0].dtype;
  k.shape.set(0, in[0].shape[0]);
  v.shape.set(0, in[0].shape[0]);
  const TensorType whole[] = {in[0], k, v};
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, whole, attrs, 0, 1, 2));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, table, "table", 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, table, "table", in[static_cast<size_t>(table)].shape));
  const Shape tokens{in[0].shape[0], in[0].shape[1]};
  TSR_RETURN_IF_ERROR(check_indices(kName, in, table + 1, "row", tokens));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, table + 2, "position", tokens));
  std::vector<TensorType> out = {{in[0].dtype, attended_shape(in[0].shape, v.shape)}};
  if (attr_i64(attrs, "with_lse") == 1)
    out.push_back({statistics_dtype(in[0].dtype), without_last(in[0].shape)});
  return out;
}

// The table holds indices of pages: pages stay whole, and so does the table. One head
// of keys is whole, too: shards have some of the heads of queries, and all pages.
ShardingRule attention_paged_sharding(const OpView& view) {
  const bool with_lse = attr_i64(view.attrs, "with_lse") == 1;
  if (!has_value_pages(view.attrs))
    return make_rule(std::string("bthd,ps1d,rm,bt,bt->bthe") + (with_lse ? ",bth" : ""), {}, "sdeprm");
  const bool is_square = value_width(view.inputs[1].shape, view.inputs[2].shape) == 'd';
  const std::string width(1, is_square ? 'd' : 'e');
  return make_rule("bt(kg)d,pskd,psk" + width + ",rm,bt,bt->bt(kg)" + width + (with_lse ? ",bt(kg)" : ""), {},
                   is_square ? "sdprm" : "sdeprm");
}

// The lengths of sequences are unknown here: every token is counted with all
// positions of the table, or its window; each row's pages are read once.
OpCost attention_paged_cost(const OpView& view) {
  const bool has_values = has_value_pages(view.attrs);
  const Shape &q = view.inputs[0].shape, &k = view.inputs[1].shape,
              &table = view.inputs[has_values ? 3 : 2].shape;
  const int64_t V = last_extent(view.outputs[0].shape);
  const int64_t window = attr_i64(view.attrs, "window"), most = table[1] * k[1];
  const int64_t seen = window == 0 ? most : std::min(most, window);
  const double queries = static_cast<double>(q[0] * q[1]) * static_cast<double>(q[2]);
  const auto all = static_cast<double>(bytes(view.inputs[1]) + (has_values ? bytes(view.inputs[2]) : 0));
  OpCost cost =
      traffic_cost(view, 2.0 * queries * static_cast<double>(last_extent(q) + V) * static_cast<double>(seen));
  const double slots = static_cast<double>(k[0]) * static_cast<double>(k[1]);
  const double read = static_cast<double>(std::min(table[0], q[0] * q[1])) * static_cast<double>(seen);
  if (slots > 0) cost.bytes_read -= all * (1 - std::min(1.0, read / slots));
  return cost;
}

}  // namespace

extern const OpDef kAttentionPaged = {
    .name = kName,
    .attrs = kAttrs,
    .infer = attention_paged_infer,
    .sharding = attention_paged_sharding,
    .cost = attention_paged_cost,
    .pages = {.first = 1, .behind = 3},
};

}  // namespace tessera
