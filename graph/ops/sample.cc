// sample(logits, temperature, top_k, top_p, seed, start, length): one token for each sequence.
//   temperature 0: the token with the largest logit, the lowest one on a tie. Otherwise softmax(logits /
//   temperature) over the top_k likeliest tokens (0: all), cut to the shortest head whose probability reaches
//   top_p (1: all), and one uniform number. That is a function of seed, the position start[b] + length[b] and
//   the sequence b alone: a run repeats exactly, in one piece or resumed, and on any number of devices.
//   logits [B, V], temperature [], top_k [] i32, top_p [], seed [] i64, start, length [B] i32 -> token [B]
//   i32.

#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace sample {

constexpr std::string_view kName = "sample";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 7));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "logits"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "logits", 2));
  const DType scalar = statistics_dtype(in[0].dtype);
  const Shape batch{in[0].shape[0]};
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "temperature", scalar));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "temperature", Shape{}));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "top_k", Shape{}));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 3, "top_p", scalar));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 3, "top_p", Shape{}));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 4, "seed", DType::kI64));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 4, "seed", Shape{}));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 5, "start", batch));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 6, "length", batch));
  return std::vector<TensorType>{{DType::kI32, batch}};
}

ShardingRule sharding(const OpView&) { return make_rule("bv,,,,,b,b->b", {}, "v"); }

OpCost cost(const OpView& view) {
  return traffic_cost(view, 5.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace sample

extern const OpDef kSample = {
    .name = sample::kName, .infer = sample::infer, .sharding = sample::sharding, .cost = sample::cost};

}  // namespace tessera
