// Dropout of a whole batch, and of rows that have their own.
//
// dropout(x, seed)[i] = x[i] / (1 - p) where u(i) >= p, else 0.
// x [d0, ..., dn], seed i64 [] -> y the type of x
// u(i) in [0, 1) are the bits of Philox4x32-10 with key `seed` and counter (i, salt). i is the row-major
// index of the element in the whole tensor, never in the shard: any sharding drops the same elements,
// and so does the backward pass, which is the same op on dy. `salt` distinguishes the nodes of a graph.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
const AttrSpec kAttrs[] = {
    {"p", AttrType::kF64, std::nullopt, "probability of an element to be dropped, 0 <= p < 1"},
    {"salt", AttrType::kI64, AttrValue(int64_t{0}), "different for every dropout of a graph"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("dropout", in, 2));
  TSR_RETURN_IF_ERROR(check_float("dropout", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_dtype("dropout", in, 1, "seed", DType::kI64));
  TSR_RETURN_IF_ERROR(check_shape("dropout", in, 1, "seed", Shape{}));
  const double p = attr_f64(attrs, "p");
  if (!(p >= 0 && p < 1))
    return Status(StatusCode::kInvalidArgument, format("dropout: p is {}, wanted 0 <= p < 1", p));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] {
    return b.emit("dropout", {*dy, b.input(1)}, {b.attrs().begin(), b.attrs().end()});
  });
}
}  // namespace

extern const OpDef kDropout = {
    .name = "dropout",
    .attrs = kAttrs,
    .infer = infer,
    .vjp = vjp,
    .sharding = [](const OpView& v) { return pointwise_rule(v, {{0}}); },
    .cost = elementwise_cost<30>,
    .in_place = kInPlaceFirst,
    .is_noise = true,
};

// row_dropout(x, seed, row, rate)[b, t, k] = x[b, t, k] / (1 - rate[b]) where u(b, t, k) >= rate[b], else 0
//   x [..., T, K], seed, row i64 [...], rate f64 [...] (absent: attribute p, for all rows) -> y the type of x.  Linear in x.
// u are the bits of Philox with key seed[b] and counter ((row[b] T + t) K + k, salt): those of dropout in row number row[b] of a
// batch with that seed. A row drops the same elements at any place of any batch, and so does any shard. A rate that is not
// above 0 leaves the row as it is, one of 1 or more drops all of it.
namespace row_dropout {

constexpr std::string_view kName = "row_dropout";

const AttrSpec kAttrs[] = {
    {"p", AttrType::kF64, AttrValue(0.0), "probability of an element to be dropped, 0 <= p < 1, where there is no rate"},
    {"salt", AttrType::kI64, AttrValue(int64_t{0}), "different for every dropout of a graph"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 2));
  const Shape rows = without_last(without_last(in[0].shape));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "seed", DType::kI64));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "seed", rows));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "row", DType::kI64));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 2, "row", rows));
  if (in.size() > 3) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, 3, "rate", DType::kF64));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, 3, "rate", rows));
  }
  const double p = attr_f64(attrs, "p");
  if (!(p >= 0 && p < 1)) return Status(StatusCode::kInvalidArgument, format("row_dropout: p is {}, wanted 0 <= p < 1", p));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    std::vector<TensorId> inputs = {*dy};
    for (int i = 1; i < b.input_count(); ++i) inputs.push_back(b.input(i));
    TSR_ASSIGN_OR_RETURN(const auto dx, b.emit_all("row_dropout", inputs, {b.attrs().begin(), b.attrs().end()}));
    return dx[0];
  });
}

}  // namespace row_dropout

extern const OpDef kRowDropout = {
    .name = row_dropout::kName,
    .attrs = row_dropout::kAttrs,
    .infer = row_dropout::infer,
    .vjp = row_dropout::vjp,
    .sharding = [](const OpView& v) { return pointwise_rule(v, {{0}}); },
    .cost = elementwise_cost<30>,
    .in_place = kInPlaceFirst,
    .is_noise = true,
};

}  // namespace tessera
