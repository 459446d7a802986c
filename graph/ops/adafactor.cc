// Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018, algorithms 4
// and 5), in steps that a shard can compute: sums over rows and columns are partial sums, and the functions of whole sums
// are separate nodes. The second moment of a matrix g [..., M, N] is kept as means of its rows and columns:
// V[..., m, n] = r[..., m] c[..., n] / mean_m r[..., m],  U = g / sqrt(V),  p = p - lr (U / max(1, rms(U) / d) + decay p)
// Tensors of fewer dims keep V itself. Gradients are g gscale; gscale = 0 leaves parameter and state as they are.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// --- square_sums(g): rows[..., m] = sum_n g[..., m, n]^2, cols[..., n] = sum_m g[..., m, n]^2
//     g [..., M, N] -> rows [..., M], cols [..., N] (f64 in an f64 graph, else f32)

namespace {
namespace square_sums {

constexpr std::string_view kName = "square_sums";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "g"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "g", 2));
  const Shape rows = without_last(in[0].shape);
  const DType dtype = statistics_dtype(in[0].dtype);
  return std::vector<TensorType>{{dtype, rows},
                                 {dtype, with_last(without_last(rows), last_extent(in[0].shape))}};
}

ShardingRule sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 2, "mn");
  ShardingRule rule = make_rule(format("{}mn->{}m,{}n", leading, leading, leading));
  reduce_too(rule, "mn");
  return rule;
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 4 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace square_sums
}  // namespace

extern const OpDef kSquareSums = {.name = square_sums::kName,
                                  .infer = square_sums::infer,
                                  .sharding = square_sums::sharding,
                                  .cost = square_sums::cost};

// --- adafactor_moment(s, sums, step, gscale): b = 1 - step^-decay_rate,  s = b s + (1 - b) (gscale^2 sums / count + eps)
//     s, sums of one shape, step, gscale [] -> s

namespace {
namespace adafactor_moment {

constexpr std::string_view kName = "adafactor_moment";
const AttrSpec kAttrs[] = {
    {"count", AttrType::kI64, AttrValue(int64_t{1}), "squares in a sum, of the whole gradient"},
    {"decay_rate", AttrType::kF64, AttrValue(0.8), "how fast the decay of the mean approaches 1"},
    {"eps", AttrType::kF64, AttrValue(1e-30), "added to squares of gradients"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "s"));
  if (in[0].dtype != statistics_dtype(in[0].dtype))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 0 (s) is {}, wanted f32 or f64", kName, in[0]));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  for (int i = 2; i < 4; ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, i, "scalar", in[0].dtype));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, i, "scalar", Shape{}));
  }
  TSR_RETURN_IF_ERROR(check_range(kName, attrs, "decay_rate", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_range(kName, attrs, "eps", 0, kUnbounded));
  return std::vector<TensorType>{in[0]};
}

}  // namespace adafactor_moment
}  // namespace

extern const OpDef kAdafactorMoment = {.name = adafactor_moment::kName,
                                       .attrs = adafactor_moment::kAttrs,
                                       .infer = adafactor_moment::infer,
                                       .sharding = [](const OpView& v) { return pointwise_rule(v); },
                                       .cost = elementwise_cost<6>,
                                       .in_place = kInPlaceFirst};

// --- the second moment among the operands: v of g's shape, or, with factored = 1, r [..., M], c [..., N] and
//     t [...] = sum_m r

namespace {
const AttrSpec kFactored = {"factored", AttrType::kI64, AttrValue(int64_t{0}),
                            "1: the second moment is r, c, t; 0: it is v"};
const AttrSpec kRows = {"rows", AttrType::kI64, AttrValue(int64_t{1}), "M of the whole gradient"};

int moments(Attrs attrs) { return attr_i64(attrs, "factored") == 1 ? 3 : 1; }

// Checks the moments from operand `first` on, of gradient `g`.
Status check_moments(std::string_view op, Types in, Attrs attrs, int first, const TensorType& g) {
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "factored"));
  const DType dtype = statistics_dtype(g.dtype);
  const auto check = [&](int i, std::string_view name, const Shape& shape) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, dtype));
    return check_shape(op, in, i, name, shape);
  };
  if (moments(attrs) == 1) return check(first, "v", g.shape);
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, first - 1, "g", 2));
  const Shape rows = without_last(g.shape), leading = without_last(rows);
  TSR_RETURN_IF_ERROR(check(first, "r", rows));
  TSR_RETURN_IF_ERROR(check(first + 1, "c", with_last(leading, last_extent(g.shape))));
  return check(first + 2, "t", leading);
}

Status check_scalars(std::string_view op, Types in, int first, DType dtype) {
  for (int i = first; i < static_cast<int>(in.size()); ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "scalar", dtype));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, "scalar", Shape{}));
  }
  return {};
}

// The operands' letters: dims of g in order of the alphabet, as the rounding of parameters requires.
std::string moment_letters(const std::string& g, Attrs attrs) {
  if (moments(attrs) == 1) return g;
  const std::string leading = g.substr(0, g.size() - 2);
  return format("{},{}{},{}", g.substr(0, g.size() - 1), leading, g.back(), leading);
}
}  // namespace

// --- adafactor_squares(g, (v | r, c, t), gscale) = sum of U^2 over all elements:  -> []

namespace {
namespace adafactor_squares {

constexpr std::string_view kName = "adafactor_squares";
const AttrSpec kAttrs[] = {kFactored, kRows};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2 + moments(attrs)));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "g"));
  TSR_RETURN_IF_ERROR(check_moments(kName, in, attrs, 1, in[0]));
  const DType dtype = statistics_dtype(in[0].dtype);
  TSR_RETURN_IF_ERROR(check_scalars(kName, in, 1 + moments(attrs), dtype));
  return std::vector<TensorType>{{dtype, Shape{}}};
}

ShardingRule sharding(const OpView& view) {
  const std::string g = leading_letters(view.inputs[0].shape.rank());
  return make_rule(format("{},{},->", g, moment_letters(g, view.attrs)));
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 8 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace adafactor_squares
}  // namespace

extern const OpDef kAdafactorSquares = {.name = adafactor_squares::kName,
                                        .attrs = adafactor_squares::kAttrs,
                                        .infer = adafactor_squares::infer,
                                        .sharding = adafactor_squares::sharding,
                                        .cost = adafactor_squares::cost};

// --- adafactor_update(p, g, (v | r, c, t), squares, lr, gscale) -> p
//     rms(U) = sqrt(squares / count)

namespace {
namespace adafactor_update {

// The salt is for adafactor_update_stochastic only.
const AttrSpec kAttrs[] = {
    kFactored,
    kRows,
    {"count", AttrType::kI64, AttrValue(int64_t{1}), "elements of the whole parameter"},
    {"clip_threshold", AttrType::kF64, AttrValue(1.0), "bound on the root mean square of U"},
    {"weight_decay", AttrType::kF64, AttrValue(0.0), "decoupled; times lr"},
    {"lr_scale", AttrType::kF64, AttrValue(1.0), "factor on lr, of this parameter"},
    {"salt", AttrType::kI64, AttrValue(int64_t{0}), "different for every parameter of a graph"},
};

Inferred infer_update(std::string_view op, Types in, Attrs attrs, bool stochastic) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 5 + moments(attrs) + (stochastic ? 1 : 0)));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "parameter"));
  TSR_RETURN_IF_ERROR(check_float(op, in, 1, "gradient"));
  TSR_RETURN_IF_ERROR(check_same_shape(op, in, 0, 1));
  if (stochastic) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 0, "parameter", DType::kBF16));
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "gradient", statistics_dtype(in[1].dtype)));
    const int seed = static_cast<int>(in.size()) - 1;
    TSR_RETURN_IF_ERROR(check_dtype(op, in, seed, "seed", DType::kI64));
    TSR_RETURN_IF_ERROR(check_shape(op, in, seed, "seed", Shape{}));
    in = in.first(in.size() - 1);
  } else {
    TSR_RETURN_IF_ERROR(check_same_type(op, in, 0, 1));
  }
  TSR_RETURN_IF_ERROR(check_moments(op, in, attrs, 2, in[1]));
  TSR_RETURN_IF_ERROR(check_scalars(op, in, 2 + moments(attrs), statistics_dtype(in[1].dtype)));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "clip_threshold", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "weight_decay", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "lr_scale", 0, kUnbounded));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string p = leading_letters(view.inputs[0].shape.rank());
  const size_t scalars = view.inputs.size() - 2 - static_cast<size_t>(moments(view.attrs));
  return make_rule(
      format("{},{},{}{}->{}", p, p, moment_letters(p, view.attrs), std::string(scalars, ','), p));
}

}  // namespace adafactor_update
}  // namespace

extern const OpDef kAdafactorUpdate = {
    .name = "adafactor_update",
    .attrs = std::span(adafactor_update::kAttrs).first(std::size(adafactor_update::kAttrs) - 1),
    .infer = [](Types in,
                Attrs attrs) { return adafactor_update::infer_update("adafactor_update", in, attrs, false); },
    .sharding = adafactor_update::sharding,
    .cost = elementwise_cost<12>,
    .in_place = kInPlaceFirst,
    .is_update = true,
    .stochastic_op = "adafactor_update_stochastic",
};

// p bf16, g, (v | r, c, t), squares, lr, gscale, seed i64 -> p
extern const OpDef kAdafactorUpdateStochastic = {
    .name = "adafactor_update_stochastic",
    .attrs = adafactor_update::kAttrs,
    .infer =
        [](Types in, Attrs attrs) {
          return adafactor_update::infer_update("adafactor_update_stochastic", in, attrs, true);
        },
    .sharding = adafactor_update::sharding,
    .cost = elementwise_cost<25>,
    .in_place = kInPlaceFirst,
    .is_update = true,
};

}  // namespace tessera
