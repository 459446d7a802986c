// expert_matmul(x, w, load)[e, b, s, n] = sum_k x[e, b, s, k] * w[e, k, n]: every expert's own weight over
// its slots. With `load` only the first load[e, b] slots are computed; the others are 0, whatever x holds
// there.
//   x [E, B, S, K], w [E, K, N] ([E, N, K] when trans_w = 1) as x, or bf16, f16 or a block type, load [E, B] i32
//   optional -> y [E, B, S, N]
//   A narrow w is widened as it is read, and does not train. activations as in quantized_matmul: "q8" for
//   block types [E, N, K].
// expert_matmul_weight_grad(x, dy, load)[e, k, n] = sum over b and the slots s < load of x[e, b, s, k] *
// dy[e, b, s, n] ([e, n, k] when trans_w = 1).
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

const AttrSpec kGradAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: the weight is stored [E, N, K]"},
    allow_tf32_spec(),
};

Status check_load(std::string_view op, Types in) {
  if (in.size() < 3) return {};
  return check_indices(op, in, 2, "load", Shape{in[0].shape[0], in[0].shape[1]});
}

double elements(const TensorType& type) { return static_cast<double>(type.shape.elements()); }

}  // namespace

namespace expert_matmul {

constexpr std::string_view kName = "expert_matmul";

const AttrSpec kAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: the weight is stored [E, N, K]"},
    allow_tf32_spec(),
    {.name = "activations",
     .type = AttrType::kString,
     .default_value = AttrValue(std::string("f32")),
     .meaning = "f32: x as it is; q8: its rows rounded to 8 bits, for weights [E, N, K] of block types",
     .is_late = true},
};

bool has_narrow_weight(Types in) { return is_narrow_type(in[1].dtype) && in[1].dtype != in[0].dtype; }

Status check_activations(Types in, Attrs attrs) {
  const std::string& activations = attr_string(attrs, "activations");
  if (activations == "f32") return {};
  if (activations != "q8")
    return Status(StatusCode::kInvalidArgument,
                  format("{}: activations is '{}', wanted f32 or q8", kName, activations));
  if (has_integer_codes(in[1].dtype) && attr_i64(attrs, "trans_w") == 1) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: activations is 'q8', operand 1 (w) is {} with trans_w = {}; wanted a block type "
                       "of integer codes stored [E, N, K]",
                       kName, in[1], attr_i64(attrs, "trans_w")));
}

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2, 3));
  for (const char* flag : {"trans_w", "allow_tf32"}) TSR_RETURN_IF_ERROR(check_flag(kName, attrs, flag));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  if (!has_narrow_weight(in)) TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_activations(in, attrs));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "w", 3));
  const bool trans = attr_i64(attrs, "trans_w") == 1;
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "w", 0, in[0].shape[0]));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "w", trans ? 2 : 1, in[0].shape[3]));
  TSR_RETURN_IF_ERROR(check_load(kName, in));
  return std::vector<TensorType>{
      {in[0].dtype, with_last(without_last(in[0].shape), in[1].shape[trans ? 1 : 2])}};
}

// dx = dy w^T and dw = x^T dy, both over the used slots only.
Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const int64_t trans = attr_i64(b.attrs(), "trans_w");
  const bool has_load = b.input_count() == 3;
  const DType w = b.input_type(1).dtype;
  if (b.needs_grad(1) && is_narrow_type(w) && w != b.input_type(0).dtype)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: a weight stored as {} does not train: freeze it", kName, to_text(w)));
  if (attr_string(b.attrs(), "activations") == "q8")
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: there is no gradient through activations that are rounded to 8 bits "
                         "(activations = \"q8\"): wanted \"f32\"",
                         kName));
  const std::vector<Attr> turned = {{"trans_w", 1 - trans}, allow_tf32_as(b.attrs())},
                          same = {{"trans_w", trans}, allow_tf32_as(b.attrs())};
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] {
    return has_load ? b.emit("expert_matmul", {*dy, b.input(1), b.input(2)}, turned)
                    : b.emit("expert_matmul", {*dy, b.input(1)}, turned);
  }));
  return set_grad(b, 1, [&] {
    return has_load ? b.emit("expert_matmul_weight_grad", {b.input(0), *dy, b.input(2)}, same)
                    : b.emit("expert_matmul_weight_grad", {b.input(0), *dy}, same);
  });
}

// The packed dim of a block type is split between whole blocks, as a row's parts are rounded to 8 bits.
ShardingRule sharding(const OpView& view) {
  const bool rounds = attr_string(view.attrs, "activations") == "q8";  // then it is not linear in x
  const LinearSets linear = rounds                           ? LinearSets{}
                            : has_narrow_weight(view.inputs) ? LinearSets{{0}}
                                                             : LinearSets{{0}, {1}};
  return make_rule(format("ebsk,{}{}->ebsn", attr_i64(view.attrs, "trans_w") == 1 ? "enk" : "ekn",
                          view.inputs.size() == 3 ? ",eb" : ""),
                   linear);
}

OpCost cost(const OpView& view) {
  return traffic_cost(view,
                      2 * elements(view.outputs[0]) * static_cast<double>(last_extent(view.inputs[0].shape)));
}

}  // namespace expert_matmul

extern const OpDef kExpertMatmul = {
    .name = expert_matmul::kName,
    .attrs = expert_matmul::kAttrs,
    .infer = expert_matmul::infer,
    .vjp = expert_matmul::vjp,
    .sharding = expert_matmul::sharding,
    .cost = expert_matmul::cost,
    .weight = {.operand = 1, .stored_read = read_along_blocks},
    .multiplies_matrices = true,
};

namespace expert_matmul_weight_grad {

constexpr std::string_view kName = "expert_matmul_weight_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2, 3));
  for (const char* flag : {"trans_w", "allow_tf32"}) TSR_RETURN_IF_ERROR(check_flag(kName, attrs, flag));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "dy", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "dy", 4));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "dy", with_last(without_last(in[0].shape), in[1].shape[3])));
  TSR_RETURN_IF_ERROR(check_load(kName, in));
  const int64_t E = in[0].shape[0], k = in[0].shape[3], n = in[1].shape[3];
  return std::vector<TensorType>{
      {in[0].dtype, attr_i64(attrs, "trans_w") == 1 ? Shape{E, n, k} : Shape{E, k, n}}};
}

ShardingRule sharding(const OpView& view) {
  return make_rule(format("ebsk,ebsn{}->{}", view.inputs.size() == 3 ? ",eb" : "",
                          attr_i64(view.attrs, "trans_w") == 1 ? "enk" : "ekn"),
                   {{0}, {1}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view,
                      2 * elements(view.inputs[0]) * static_cast<double>(last_extent(view.inputs[1].shape)));
}

}  // namespace expert_matmul_weight_grad

extern const OpDef kExpertMatmulWeightGrad = {
    .name = expert_matmul_weight_grad::kName,
    .attrs = kGradAttrs,
    .infer = expert_matmul_weight_grad::infer,
    .sharding = expert_matmul_weight_grad::sharding,
    .cost = expert_matmul_weight_grad::cost,
    .multiplies_matrices = true,
};

}  // namespace tessera
