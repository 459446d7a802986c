// Routing of a mixture of experts: the experts of each token, the slots there, and the weights.
//
// A group is one sequence (the groups' factor is the batch factor b): every sequence has `capacity` slots at
// every expert, filled in the order of its tokens. A choice without a free slot is dropped. So drops depend
// only on the tokens before it in the same sequence, not on how the batch is split over devices or
// micro-batches.
#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

Status check_normalize(std::string_view op, Attrs attrs) {
  const int64_t normalize = attr_i64(attrs, "normalize");
  if (normalize == 0 || normalize == 1) return {};
  return Status(StatusCode::kInvalidArgument, format("{}: normalize is {}, wanted 0 or 1", op, normalize));
}

Status check_sum_eps(std::string_view op, Attrs attrs) {
  const double eps = attr_f64(attrs, "sum_eps");
  if (eps >= 0 && eps <= 1) return {};
  return Status(StatusCode::kInvalidArgument, format("{}: sum_eps is {}, wanted 0 to 1", op, eps));
}

// probs [B, T, E]
Status check_probs(std::string_view op, Types in, int i) {
  TSR_RETURN_IF_ERROR(check_float(op, in, i, "probs"));
  return check_rank(op, in, i, "probs", 3);
}

// Slots of one expert for one sequence of T tokens. For a symbol T: T, the upper bound.
int64_t slots(int64_t T, int64_t E, int64_t k, double capacity) {
  if (is_symbol(T) || is_symbol(E) || E == 0 || capacity == 0) return T;
  const double even = static_cast<double>(k) * static_cast<double>(T) / static_cast<double>(E);
  const double wanted = std::ceil(capacity * even - 1e-9);  // 1.2 x 10 is 12, not 13
  return wanted >= static_cast<double>(T) ? T : std::max<int64_t>(1, static_cast<int64_t>(wanted));
}

}  // namespace

// moe_route(probs, bias): every token takes the k experts of its k largest scores, largest first (the lower index of
// equals). A score is the probability, plus bias[e] where there is one. With `groups` > 1 experts stand in so many
// equal groups, in order; a group counts as the sum of its `group_best` largest scores, and only experts of a token's
// `groups_used` best groups are taken. At each expert it takes the next free slot: tokens in order, and for one token
// the larger score first.
//   probs [B, T, E], bias [E] (f64 with f64, else f32) optional
//   -> expert [B, T, K] i32; slot [B, T, K] i32, -1: dropped; gate [B, T, K], the probability,
//   divided by the sum of the token's k, plus sum_eps, with normalize = 1; token [E, B, S] i32, the owner of the slot, -1: none;
//   load [E, B] i32, number of slots taken: the first ones.
//   S = min(T, ceil(capacity * k * T / E)), at least 1; T with capacity = 0: then nothing is dropped.
// Differentiable in gate. The bias chooses and does nothing else: no gradient goes through it.
namespace moe_route {

constexpr std::string_view kName = "moe_route";
const AttrSpec kAttrs[] = {
    {"k", AttrType::kI64, std::nullopt, "experts of a token"},
    {"capacity", AttrType::kF64, AttrValue(0.0),
     "slots of an expert, in multiples of its even share k * T / E of a sequence; 0: no token is dropped"},
    {"normalize", AttrType::kI64, AttrValue(int64_t{1}), "1: the weights of a token's experts sum to 1"},
    {.name = "groups",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{1}),
     .meaning = "groups of experts, at most 64",
     .is_late = true},
    {.name = "groups_used",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{1}),
     .meaning = "groups that a token's experts are of",
     .is_late = true},
    {.name = "group_best",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{2}),
     .meaning = "scores that a group counts by, the largest: 1 or 2",
     .is_late = true},
    {.name = "sum_eps",
     .type = AttrType::kF64,
     .default_value = AttrValue(0.0),
     .meaning = "added to the sum by which normalize = 1 divides",
     .is_late = true},
};

// Checks groups of E experts, of which a token takes k.
Status check_groups(int64_t E, int64_t k, Attrs attrs) {
  const int64_t groups = attr_i64(attrs, "groups"), used = attr_i64(attrs, "groups_used");
  if (groups < 1 || groups > 64 || (!is_symbol(E) && E % groups != 0))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: groups is {}, wanted a divisor of the number of experts, which is {}, up to 64",
                         kName, groups, E));
  if (used < 1 || used > groups)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: groups_used is {}, wanted 1 to {} (groups)", kName, used, groups));
  if (const int64_t best = attr_i64(attrs, "group_best"); best != 1 && best != 2)
    return Status(StatusCode::kInvalidArgument, format("{}: group_best is {}, wanted 1 or 2", kName, best));
  if (is_symbol(E) || k <= E / groups * used) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("{}: k is {}, wanted at most {}, the experts of {} groups", kName, k, E / groups * used, used));
}

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1, 2));
  TSR_RETURN_IF_ERROR(check_probs(kName, in, 0));
  TSR_RETURN_IF_ERROR(check_normalize(kName, attrs));
  TSR_RETURN_IF_ERROR(check_sum_eps(kName, attrs));
  const int64_t B = in[0].shape[0], T = in[0].shape[1], E = in[0].shape[2], k = attr_i64(attrs, "k");
  if (k < 1 || (!is_symbol(E) && k > E))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: k is {}, wanted 1 to the number of experts, which is {}", kName, k, E));
  TSR_RETURN_IF_ERROR(check_groups(E, k, attrs));
  if (in.size() == 2) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "bias", statistics_dtype(in[0].dtype)));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "bias", Shape{E}));
  }
  const double capacity = attr_f64(attrs, "capacity");
  if (!(capacity >= 0) || capacity > 1e6)
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: capacity is {}, wanted 0 (nothing is dropped) or a factor up to 1e6", kName, capacity));
  const Shape choices{B, T, k};
  return std::vector<TensorType>{{DType::kI32, choices},
                                 {DType::kI32, choices},
                                 {in[0].dtype, choices},
                                 {DType::kI32, {E, B, slots(T, E, k, capacity)}},
                                 {DType::kI32, {E, B}}};
}

Status vjp(VjpBuilder& b) {
  const auto dgate = b.output_grad(2);
  if (!dgate) return {};
  return set_grad(b, 0, [&] {
    return b.emit("moe_route_grad", {b.input(0), b.output(0), *dgate},
                  {{"normalize", attr_i64(b.attrs(), "normalize")}, {"sum_eps", attr_f64(b.attrs(), "sum_eps")}});
  });
}

// t is whole, since a token's slot depends on all tokens before it.
ShardingRule sharding(const OpView& view) {
  return make_rule(std::string(view.inputs.size() == 2 ? "bte,e" : "bte") + "->btk,btk,btk,ebs,eb", {},
                   "tkes");
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, static_cast<double>(view.inputs[0].shape.elements()) *
                                static_cast<double>(last_extent(view.outputs[0].shape)));
}

}  // namespace moe_route

extern const OpDef kMoeRoute = {
    .name = moe_route::kName,
    .attrs = moe_route::kAttrs,
    .infer = moe_route::infer,
    .vjp = moe_route::vjp,
    .sharding = moe_route::sharding,
    .cost = moe_route::cost,
    .routing_scores = 0,
};

// moe_route_grad: the gradient of the chosen probabilities from that of the gates: dgate itself, or with
// normalize = 1 and gates g = p / S, S = sum(p) + sum_eps:  dp[j] = (dgate[j] - sum_i dgate[i] * g[i]) / S
//   probs [B, T, E], expert [B, T, K] i32, dgate [B, T, K] -> dprobs [B, T, E].  Linear in dgate.
namespace moe_route_grad {

constexpr std::string_view kName = "moe_route_grad";
const AttrSpec kAttrs[] = {
    {"normalize", AttrType::kI64, AttrValue(int64_t{1}), "as in moe_route"},
    {.name = "sum_eps", .type = AttrType::kF64, .default_value = AttrValue(0.0), .meaning = "as in moe_route", .is_late = true},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_probs(kName, in, 0));
  TSR_RETURN_IF_ERROR(check_normalize(kName, attrs));
  TSR_RETURN_IF_ERROR(check_sum_eps(kName, attrs));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 2, "dgate", 3));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "dgate", in[0].dtype));
  TSR_RETURN_IF_ERROR(
      check_shape(kName, in, 2, "dgate", with_last(without_last(in[0].shape), last_extent(in[2].shape))));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "expert", in[2].shape));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView&) { return make_rule("bte,btk,btk->bte", {{2}}, "ek"); }

OpCost cost(const OpView& view) {
  return traffic_cost(view, 5 * static_cast<double>(view.inputs[2].shape.elements()));
}

}  // namespace moe_route_grad

extern const OpDef kMoeRouteGrad = {.name = moe_route_grad::kName,
                                    .attrs = moe_route_grad::kAttrs,
                                    .infer = moe_route_grad::infer,
                                    .sharding = moe_route_grad::sharding,
                                    .cost = moe_route_grad::cost};

// moe_fraction(expert)[b, e] = number of choices of expert e in sequence b, dropped or not, / (T * K)
//   expert [B, T, K] i32, shape of probs [B, T, E] -> [B, E] of the dtype of probs. The balance loss of
//   Switch Transformers is E * sum_e fraction[e] * mean_t probs[t, e]; it is 1 where the load is even. No
//   gradient: counts are constant almost everywhere.
namespace moe_fraction {

constexpr std::string_view kName = "moe_fraction";
const int kShapeOnly[] = {1};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_probs(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "expert", 3));
  const Shape &expert = in[0].shape, &probs = in[1].shape;
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 0, "expert", Shape{probs[0], probs[1], expert[2]}));
  return std::vector<TensorType>{{in[1].dtype, Shape{probs[0], probs[2]}}};
}

ShardingRule sharding(const OpView&) { return make_rule("btk,bte->be"); }

OpCost cost(const OpView& view) {
  return traffic_cost(view, static_cast<double>(view.inputs[0].shape.elements()), kShapeOnly);
}

}  // namespace moe_fraction

extern const OpDef kMoeFraction = {.name = moe_fraction::kName,
                                   .infer = moe_fraction::infer,
                                   .vjp = no_gradient,
                                   .sharding = moe_fraction::sharding,
                                   .cost = moe_fraction::cost,
                                   .shape_only = moe_fraction::kShapeOnly};

}  // namespace tessera
