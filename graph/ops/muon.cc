// Muon's further steps (Jordan et al., "Muon: an optimizer for hidden layers in neural networks",
// 2024): momentum, and the step itself. The iteration between them is orthogonalize.cc.
// lr (times the attribute lr_scale) and gscale are scalars as in optimizer_updates.cc.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Status check_scalars_from(std::string_view op, Types in, int first, DType dtype) {
  for (int i = first; i < static_cast<int>(in.size()); ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "scalar", dtype));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, "scalar", Shape{}));
  }
  return {};
}
}  // namespace

// --- muon_momentum(m, g, gscale): m = momentum m + (1 - momentum) g,  d = momentum m + (1 - momentum) g, with the new m
//     m, g of one shape, gscale [] -> m, d (of m's type); gscale = 0 leaves m as it is and makes d 0

namespace {
namespace muon_momentum {

constexpr std::string_view kName = "muon_momentum";
const AttrSpec kAttrs[] = {{"momentum", AttrType::kF64, AttrValue(0.95), "decay of the mean of gradients"}};
constexpr int kInPlace[] = {0, -1};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 1, "g"));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 0, "m", statistics_dtype(in[1].dtype)));
  TSR_RETURN_IF_ERROR(check_same_shape(kName, in, 0, 1));
  TSR_RETURN_IF_ERROR(check_scalars_from(kName, in, 2, in[0].dtype));
  TSR_RETURN_IF_ERROR(check_range(kName, attrs, "momentum", 0, 1));
  return std::vector<TensorType>{in[0], in[0]};
}

}  // namespace muon_momentum
}  // namespace

extern const OpDef kMuonMomentum = {.name = muon_momentum::kName,
                                    .attrs = muon_momentum::kAttrs,
                                    .infer = muon_momentum::infer,
                                    .sharding = [](const OpView& v) { return pointwise_rule(v); },
                                    .cost = elementwise_cost<7>,
                                    .in_place = muon_momentum::kInPlace};

// --- muon_update(p, d, lr, gscale): p = p - lr (scale d + weight_decay p); gscale = 0 leaves p as it is

namespace {
namespace muon_update {

// The salt is for muon_update_stochastic only.
const AttrSpec kAttrs[] = {
    {"scale", AttrType::kF64, AttrValue(1.0), "factor on the direction, by the shape of the matrix"},
    {"weight_decay", AttrType::kF64, AttrValue(0.0), "decoupled; times lr"},
    {"lr_scale", AttrType::kF64, AttrValue(1.0), "factor on lr, of this parameter"},
    {"salt", AttrType::kI64, AttrValue(int64_t{0}), "different for every parameter of a graph"},
};

Inferred infer_update(std::string_view op, Types in, Attrs attrs, bool stochastic) {
  TSR_RETURN_IF_ERROR(check_count(op, in, stochastic ? 5 : 4));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "parameter"));
  TSR_RETURN_IF_ERROR(check_float(op, in, 1, "direction"));
  TSR_RETURN_IF_ERROR(check_same_shape(op, in, 0, 1));
  if (stochastic) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 0, "parameter", DType::kBF16));
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "direction", statistics_dtype(in[1].dtype)));
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 4, "seed", DType::kI64));
    TSR_RETURN_IF_ERROR(check_shape(op, in, 4, "seed", Shape{}));
  } else {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "direction", statistics_dtype(in[0].dtype)));
  }
  TSR_RETURN_IF_ERROR(check_scalars_from(op, in.first(4), 2, in[1].dtype));
  for (const char* name : {"scale", "weight_decay", "lr_scale"})
    TSR_RETURN_IF_ERROR(check_range(op, attrs, name, 0, kUnbounded));
  return std::vector<TensorType>{in[0]};
}

}  // namespace muon_update
}  // namespace

extern const OpDef kMuonUpdate = {
    .name = "muon_update",
    .attrs = std::span(muon_update::kAttrs).first(std::size(muon_update::kAttrs) - 1),
    .infer = [](Types in, Attrs attrs) { return muon_update::infer_update("muon_update", in, attrs, false); },
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<5>,
    .in_place = kInPlaceFirst,
    .is_update = true,
    .stochastic_op = "muon_update_stochastic",
};

// p bf16, d, lr, gscale, seed i64 -> p
extern const OpDef kMuonUpdateStochastic = {
    .name = "muon_update_stochastic",
    .attrs = muon_update::kAttrs,
    .infer = [](Types in,
                Attrs attrs) { return muon_update::infer_update("muon_update_stochastic", in, attrs, true); },
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<18>,
    .in_place = kInPlaceFirst,
    .is_update = true,
};

}  // namespace tessera
