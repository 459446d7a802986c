// Loss scaling: the factor on the loss that keeps gradients of f16 within its range (Micikevicius et al.,
// "Mixed precision training", ICLR 2018). It is a power of two, so that scaling rounds nothing. The devices
// hold the distance of its exponent from that of the first step: state begins as zeros.
#include <cmath>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Status check_scalar(std::string_view op, Types in, int i, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, statistics_dtype(in[0].dtype)));
  return check_shape(op, in, i, name, Shape{});
}
}  // namespace

// --- loss_scaling(offset) = initial * 2^offset.  offset [] -> scale []

namespace {
const AttrSpec kScaleAttrs[] = {
    {"initial", AttrType::kF64, AttrValue(65536.0), "the factor of the first step, a power of two"},
};

Inferred scale_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("loss_scaling", in, 1));
  TSR_RETURN_IF_ERROR(check_scalar("loss_scaling", in, 0, "offset"));
  const double initial = attr_f64(attrs, "initial");
  int exponent = 0;
  if (!(initial > 0) || !std::isfinite(initial) || std::frexp(initial, &exponent) != 0.5 ||
      std::abs(exponent) > 100)
    return Status(StatusCode::kInvalidArgument,
                  format("loss_scaling: initial is {}, wanted a power of two up to 2^99", initial));
  return std::vector<TensorType>{in[0]};
}
}  // namespace

extern const OpDef kLossScaling = {
    .name = "loss_scaling",
    .attrs = kScaleAttrs,
    .infer = scale_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<1>,
};

// --- loss_scaling_update(offset, good, norm) -> offset, good:  all []
//     A norm that is not finite halves the factor; `interval` consecutive steps with a finite one double it.
//     `good` counts those since the last change.

namespace {
const AttrSpec kUpdateAttrs[] = {
    {"interval", AttrType::kI64, AttrValue(int64_t{2000}), "steps after which the factor is doubled"},
    {"least", AttrType::kF64, AttrValue(-32.0), "offset below which the factor is not halved"},
    {"most", AttrType::kF64, AttrValue(16.0), "offset above which it is not doubled"},
};

Inferred update_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("loss_scaling_update", in, 3));
  TSR_RETURN_IF_ERROR(check_scalar("loss_scaling_update", in, 0, "offset"));
  TSR_RETURN_IF_ERROR(check_scalar("loss_scaling_update", in, 1, "good"));
  TSR_RETURN_IF_ERROR(check_scalar("loss_scaling_update", in, 2, "norm"));
  // Counted in f32, which is exact this far.
  const int64_t interval = attr_i64(attrs, "interval");
  if (interval < 1 || interval > (int64_t{1} << 24))
    return Status(
        StatusCode::kInvalidArgument,
        format("loss_scaling_update: interval is {}, wanted 1 <= interval <= {}", interval, 1 << 24));
  const double least = attr_f64(attrs, "least"), most = attr_f64(attrs, "most");
  if (!(least >= -64 && least <= 0 && most >= 0 && most <= 64))
    return Status(
        StatusCode::kInvalidArgument,
        format("loss_scaling_update: offsets {} to {}, wanted -64 <= least <= 0 <= most <= 64", least, most));
  return std::vector<TensorType>{in[0], in[1]};
}

constexpr int kUpdateInPlace[] = {0, 1};
}  // namespace

extern const OpDef kLossScalingUpdate = {
    .name = "loss_scaling_update",
    .attrs = kUpdateAttrs,
    .infer = update_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<2>,
    .in_place = kUpdateInPlace,
    .is_update = true,
};

}  // namespace tessera
