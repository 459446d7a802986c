// Channels times a weight each, or a weight for several: scale_channels and the gradient of the weight.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

// Checks that the channels of operand 0 are a multiple of the weights of operand `w`.
Status check_channels(std::string_view op, Types in, int w) {
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, w, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, in, w, "w", 1));
  const TensorType& weight = in[static_cast<size_t>(w)];
  const int64_t channels = last_extent(in[0].shape), weights = weight.shape[0];
  if (channels == weights) return {};
  const bool symbolic = is_symbol(channels) || is_symbol(weights);
  if (!symbolic && weights > 0 && channels % weights == 0) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: operand 0 is {}, wanted a multiple of the {} weights of operand {} (w) in its last dim", op,
                       in[0], weight, w));
}

std::string rows_of(Types in) { return leading_letters(in[0].shape.rank() - 1, "cr"); }

}  // namespace

// scale_channels(x, w)[..., i] = x[..., i] * w[i / r]
//   x [..., C * r], w [C] -> y as x: each weight scales r adjacent channels.
namespace scale_channels {

constexpr std::string_view kName = "scale_channels";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 1));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] { return b.emit(kName, {*dy, b.input(1)}); }));
  return set_grad(b, 1, [&] { return b.emit("scale_channels_grad_weight", {*dy, b.input(0), b.input(1)}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view.inputs);
  return make_rule(format("{}(cr),c->{}(cr)", rows, rows), {{0}, {1}});
}

}  // namespace scale_channels

extern const OpDef kScaleChannels = {.name = scale_channels::kName,
                                     .infer = scale_channels::infer,
                                     .vjp = scale_channels::vjp,
                                     .sharding = scale_channels::sharding,
                                     .cost = elementwise_cost<1>,
                                     .in_place = kInPlaceFirst};

// scale_channels_grad_weight(dy, x, w) -> dw[c] = sum over rows and the r channels of c of dy * x
//   dy, x [..., C * r], w [C] of which only the shape is used -> dw [C].  Linear in dy and in x.
namespace scale_channels_grad_weight {

constexpr std::string_view kName = "scale_channels_grad_weight";
const AttrSpec kAttrs[] = {kWideSums};
constexpr int kShapeOnly[] = {2};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "wide"));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 2));
  return std::vector<TensorType>{{sums_dtype(in[0].dtype, attrs), in[2].shape}};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view.inputs);
  return make_rule(format("{}(cr),{}(cr),c->c", rows, rows), {{0}, {1}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 2.0 * static_cast<double>(view.inputs[0].shape.elements()), kShapeOnly);
}

}  // namespace scale_channels_grad_weight

extern const OpDef kScaleChannelsGradWeight = {.name = scale_channels_grad_weight::kName,
                                               .attrs = scale_channels_grad_weight::kAttrs,
                                               .infer = scale_channels_grad_weight::infer,
                                               .sharding = scale_channels_grad_weight::sharding,
                                               .cost = scale_channels_grad_weight::cost,
                                               .shape_only = scale_channels_grad_weight::kShapeOnly};

}  // namespace tessera
