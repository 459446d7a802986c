// head_matmul(x, w)[b, t, h, n] = sum over k of x[b, t, h, k] * w[h, begin + n, k], or with trans_w = 0
// head_matmul(x, w)[b, t, h, k] = sum over n of x[b, t, h, n] * w[h, begin + n, k]: products of each head with its own rows
// of a weight, as multi-head latent attention has them over pages of latent vectors (DeepSeek-V2, section 2.1).
//   x [B, T, H, K] ([B, T, H, end - begin] with trans_w = 0), w [H * M, K], of whose M rows a head [begin, end) are read
//   -> y [B, T, H, end - begin] ([B, T, H, K])
//   w is as x, or bf16, f16 or a block type, widened as it is read. For serving: no gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace head_matmul {

constexpr std::string_view kName = "head_matmul";

const AttrSpec kAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{1}), "1: rows of w make results; 0: they are summed"},
    {"begin", AttrType::kI64, AttrValue(int64_t{0}), "first row of each head that is read"},
    {"end", AttrType::kI64, std::nullopt, "one past the last of them"},
};

bool has_narrow_weight(Types in) { return is_narrow_type(in[1].dtype) && in[1].dtype != in[0].dtype; }

// Checks the number of rows of a head; without a number of heads every one is allowed.
Status check_rows(Types in, Attrs attrs) {
  const int64_t heads = in[0].shape[2], rows = in[1].shape[0];
  const int64_t begin = attr_i64(attrs, "begin"), end = attr_i64(attrs, "end");
  if (is_symbol(heads) || is_symbol(rows) || (heads == 0 ? rows != 0 : rows % heads != 0))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 1 (w) is {}, wanted a multiple of the {} heads of x in dim 0", kName,
                         in[1], heads));
  if (begin < 0 || begin > end || (heads > 0 && end > rows / heads))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: rows [{}, {}) of a head, wanted 0 <= begin <= end <= {}", kName, begin, end,
                         heads > 0 ? rows / heads : end));
  return {};
}

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "trans_w"));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  if (!has_narrow_weight(in)) TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "w", 2));
  TSR_RETURN_IF_ERROR(check_rows(in, attrs));
  const int64_t rows = attr_i64(attrs, "end") - attr_i64(attrs, "begin"), columns = in[1].shape[1];
  const bool trans = attr_i64(attrs, "trans_w") == 1;
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "x", 3, trans ? columns : rows));
  return std::vector<TensorType>{{in[0].dtype, with_last(without_last(in[0].shape), trans ? rows : columns)}};
}

// The rows of a head are whole, m of them, of which n are read.
ShardingRule sharding(const OpView& view) {
  const LinearSets linear = has_narrow_weight(view.inputs) ? LinearSets{{0}} : LinearSets{{0}, {1}};
  return make_rule(attr_i64(view.attrs, "trans_w") == 1 ? "bthk,(hm)k->bthn" : "bthn,(hm)k->bthk", linear,
                   "mn");
}

OpCost cost(const OpView& view) {
  const double rows = static_cast<double>(attr_i64(view.attrs, "end") - attr_i64(view.attrs, "begin"));
  const Shape &x = view.inputs[0].shape, &w = view.inputs[1].shape;
  const double products = static_cast<double>(x[0] * x[1]) * static_cast<double>(x[2]) * rows;
  OpCost cost = traffic_cost(view, 2 * products * static_cast<double>(w[1]));
  if (w[0] > 0)
    cost.bytes_read -= static_cast<double>(bytes(view.inputs[1])) *
                       (1 - rows * static_cast<double>(x[2]) / static_cast<double>(w[0]));
  return cost;
}

StoredRead stored_read(size_t, Attrs attrs) {
  return attr_i64(attrs, "trans_w") == 1 ? StoredRead::kWanted : StoredRead::kAllowed;
}

}  // namespace head_matmul

extern const OpDef kHeadMatmul = {
    .name = head_matmul::kName,
    .attrs = head_matmul::kAttrs,
    .infer = head_matmul::infer,
    .sharding = head_matmul::sharding,
    .cost = head_matmul::cost,
    .weight = {.operand = 1, .stored_read = head_matmul::stored_read},
    .multiplies_matrices = true,
};

}  // namespace tessera
