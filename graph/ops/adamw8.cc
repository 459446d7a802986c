// adamw8_update: AdamW with its moments in 8 bits (Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR
// 2022). A moment is codes of u8, in blocks along the last dim, each with the largest absolute value of its block:
//   m = map(code) absmax,  code = the map's nearest number to m / absmax
// The maps are the paper's dynamic ones (graph/base/dynamic_map.h), signed for the first moment. A shard holds whole blocks.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

//   p, g [..., N], m, v u8 [..., N], ma, va [..., N / block], lr, step, gscale [], settings f64 [] optional -> p, m, v, ma, va
//   as adamw_update with the moments before and after the step rounded; the step itself uses them before rounding
namespace {
namespace adamw8 {

// The salt is for adamw8_update_stochastic only.
const AttrSpec kAttrs[] = {
    {"beta1", AttrType::kF64, AttrValue(0.9), "decay of the mean of gradients"},
    {"beta2", AttrType::kF64, AttrValue(0.999), "decay of the mean of squared gradients"},
    {"eps", AttrType::kF64, AttrValue(1e-8), "added to the root of the second moment"},
    {"weight_decay", AttrType::kF64, AttrValue(0.01), "decoupled; times lr"},
    {"lr_scale", AttrType::kF64, AttrValue(1.0), "factor on lr, of this parameter"},
    {.name = "fixed_decay",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{0}),
     .meaning = "1: weight_decay is this parameter's own in every step",
     .is_late = true},
    {"salt", AttrType::kI64, AttrValue(int64_t{0}), "different for every parameter of a graph"},
};
constexpr int kInPlace[] = {0, 2, 3, 4, 5};

Inferred infer_update(std::string_view op, Types in, Attrs attrs, bool stochastic) {
  constexpr int kFirst = 9, kSettings = 4;
  const int without = kFirst + (stochastic ? 1 : 0), given = static_cast<int>(in.size());
  const bool by_step = given > without;
  TSR_RETURN_IF_ERROR(check_count(op, in, without + (by_step ? kSettings : 0)));
  for (int i = kFirst; by_step && i < kFirst + kSettings; ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "setting", DType::kF64));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, "setting", Shape{}));
  }
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "parameter"));
  TSR_RETURN_IF_ERROR(check_float(op, in, 1, "gradient"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "parameter", 1));
  if (stochastic) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 0, "parameter", DType::kBF16));
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "gradient", statistics_dtype(in[1].dtype)));
    TSR_RETURN_IF_ERROR(check_same_shape(op, in, 0, 1));
    TSR_RETURN_IF_ERROR(check_dtype(op, in, given - 1, "seed", DType::kI64));
    TSR_RETURN_IF_ERROR(check_shape(op, in, given - 1, "seed", Shape{}));
  } else {
    TSR_RETURN_IF_ERROR(check_same_type(op, in, 0, 1));
  }
  for (int i = 2; i < 4; ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "codes", DType::kU8));
    TSR_RETURN_IF_ERROR(check_same_shape(op, in, 0, i));
  }
  const DType wide = statistics_dtype(in[1].dtype);
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 4, "absmax", wide));
  TSR_RETURN_IF_ERROR(check_same_type(op, in, 4, 5));
  const Shape &values = in[0].shape, &blocks = in[4].shape;
  TSR_RETURN_IF_ERROR(check_rank(op, in, 4, "absmax", values.rank()));
  const int64_t last = last_extent(values), count = last_extent(blocks);
  if (without_last(values) != without_last(blocks) || (count == 0) != (last == 0) ||
      (count > 0 && last % count != 0))
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: absmax is {}, wanted the dims of the parameter, {}, with a divisor of the last one", op,
               to_text(blocks), to_text(values)));
  for (int i = 6; i < 9; ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "scalar", wide));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, "scalar", Shape{}));
  }
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "fixed_decay"));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "beta1", 0, 1));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "beta2", 0, 1));
  for (const char* name : {"eps", "weight_decay", "lr_scale"})
    TSR_RETURN_IF_ERROR(check_range(op, attrs, name, 0, kUnbounded));
  return std::vector<TensorType>{in[0], in[2], in[3], in[4], in[5]};
}

// The last dim is blocks of z elements; its blocks have the letter that the dim would have.
ShardingRule sharding(const OpView& view) {
  const std::string blocks = leading_letters(view.inputs[0].shape.rank(), "z");
  const std::string p = format("{}({}z)", blocks.substr(0, blocks.size() - 1), blocks.back());
  const std::string scalars(view.inputs.size() - 6, ',');
  return make_rule(format("{},{},{},{},{},{}{}->{},{},{},{},{}", p, p, p, p, blocks, blocks, scalars, p, p, p,
                          blocks, blocks),
                   {}, "z");
}

}  // namespace adamw8
}  // namespace

extern const OpDef kAdamw8Update = {
    .name = "adamw8_update",
    .attrs = std::span(adamw8::kAttrs).first(std::size(adamw8::kAttrs) - 1),
    .infer = [](Types in, Attrs attrs) { return adamw8::infer_update("adamw8_update", in, attrs, false); },
    .sharding = adamw8::sharding,
    .cost = elementwise_cost<60>,
    .in_place = adamw8::kInPlace,
    .is_update = true,
    .stochastic_op = "adamw8_update_stochastic",
};

// p bf16, g, m, v, ma, va, lr, step, gscale, settings optional, seed i64 -> p, m, v, ma, va
extern const OpDef kAdamw8UpdateStochastic = {
    .name = "adamw8_update_stochastic",
    .attrs = adamw8::kAttrs,
    .infer = [](Types in,
                Attrs attrs) { return adamw8::infer_update("adamw8_update_stochastic", in, attrs, true); },
    .sharding = adamw8::sharding,
    .cost = elementwise_cost<73>,
    .in_place = adamw8::kInPlace,
    .is_update = true,
};

}  // namespace tessera
