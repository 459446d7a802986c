#include "graph/models/experts.h"

#include "graph/base/text.h"
#include "graph/models/residual.h"

namespace tessera {

void AuxiliaryLoss::add_layer(TensorId logits, TensorId probs, TensorId expert) {
  if (e_.aux > 0) {
    const TensorId mean = b_.op("reduce_mean", {probs}, {{"axes", tokens_}});  // [B, E]
    const TensorId fraction = b_.op("moe_fraction", {expert, probs});
    const TensorId products = b_.op("mul", {mean, fraction});
    add(b_.op("reduce_sum", {products}, {{"axes", experts_}}), e_.aux * static_cast<double>(e_.E));
  }
  if (e_.z > 0) {
    const TensorId square = b_.op("square", {b_.op("log_sum_exp", {logits})});
    add(b_.op("reduce_mean", {square}, {{"axes", tokens_}}), e_.z);
  }
}

void AuxiliaryLoss::add(TensorId each, double weight) {
  const TensorId mean = b_.op("reduce_mean", {each}, {{"axes", std::vector<int64_t>{0}}});
  const TensorId term = b_.op("scale", {mean}, {{"factor", weight}});
  sum_ = sum_ == kNoTensor ? term : b_.op("add", {sum_, term});
}

namespace {

// (up + 1) * gate * sigmoid(1.702 gate), both bounded (gpt-oss).
TensorId bounded_gate(LayerBuilder& b, double limit, TensorId gate, TensorId up) {
  gate = b.op("quick_gelu", {b.op("clamp", {gate}, {{"max", limit}})});
  up = b.op("clamp", {up}, {{"min", -limit}, {"max", limit}});
  return b.op("add", {b.op("mul", {up, gate}), gate});
}

// rms_norm(x) / sqrt(C), times a weight of its own.
TensorId router_input(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x) {
  const TensorId unit = b.op("l2_norm", {x}, {{"eps", static_cast<double>(m.C) * m.norm_eps}});
  return b.op("scale_channels", {unit, b.parameter(block + ".router.scale", {m.C})});
}

// wide [E, B, S, F], times a weight of each expert: as its result times it.
TensorId scaled_experts(LayerBuilder& b, const std::string& block, int64_t E, TensorId wide) {
  const TensorId scale = b.parameter(block + ".experts.scale", {E});
  return b.op("mul", {wide, b.op("broadcast", {scale, wide}, {{"axes", std::vector<int64_t>{1, 2, 3}}})});
}

// A token's own experts.
TensorId routed(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x, TensorId router_x,
                AuxiliaryLoss& auxiliary) {
  const ExpertSizes& e = m.experts;
  if (e.router_norm) router_x = router_input(b, m, block, router_x);
  const TensorId logits = b.linear(router_x, block + ".router", m.C, e.E, e.bias);
  const TensorId probs = b.op(e.sigmoid ? "sigmoid" : "softmax", {logits});
  std::vector<Attr> attrs = {{"k", e.K}, {"capacity", e.capacity}};
  if (!e.normalize) attrs.push_back({"normalize", int64_t{0}});
  if (e.sum_eps > 0) attrs.push_back({"sum_eps", e.sum_eps});
  if (e.groups > 1) {
    attrs.push_back({"groups", e.groups});
    attrs.push_back({"groups_used", e.groups_used});
    attrs.push_back({"group_best", e.group_best});
  }
  const std::vector<TensorId> route =
      e.selection_bias
          ? b.op_all("moe_route", {probs, b.constant(block + ".selection.bias", {e.E})}, std::move(attrs))
          : b.op_all("moe_route", {probs}, std::move(attrs));
  if (route.empty()) return kNoTensor;
  const TensorId expert = route[0], slot = route[1], gate = route[2], token = route[3], load = route[4];
  auxiliary.add_layer(logits, probs, expert);

  const auto product = [&](TensorId input, const char* which, int64_t k, int64_t n) {
    const std::string name = format("{}.experts.{}", block, which);
    const TensorId y =
        b.op("expert_matmul", {input, b.parameter(name, {e.E, n, k}), load}, {{"trans_w", int64_t{1}}});
    if (!e.bias) return y;
    const TensorId each = b.op("broadcast", {b.parameter(name + ".bias", {e.E, n}), y},
                               {{"axes", std::vector<int64_t>{1, 2}}});
    return b.op("add", {y, each});
  };
  const int64_t M = e.M > 0 ? e.M : m.C;
  const TensorId given = e.M > 0 ? b.linear(x, block + ".experts.in", m.C, M) : x;
  const TensorId there = b.op("moe_dispatch", {given, token});  // [E, B, S, M]
  const auto activated = [&] {
    if (m.squared_relu) return b.squared_relu(product(there, "up", M, m.F));
    const TensorId gates = product(there, "gate", M, m.F), ups = product(there, "up", M, m.F);
    return e.limit > 0 ? bounded_gate(b, e.limit, gates, ups) : gated(b, m, gates, ups);
  };
  TensorId wide = activated();
  if (e.output_scale) wide = scaled_experts(b, block, e.E, wide);
  TensorId sum = b.op("moe_combine", {product(wide, "down", m.F, M), expert, slot, gate});
  if (e.M > 0) sum = b.linear(sum, block + ".experts.out", M, m.C);
  return e.scale == 1 ? sum : b.op("scale", {sum}, {{"factor", e.scale}});
}

// The shared expert, which all tokens visit.
TensorId shared(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x) {
  const ExpertSizes& e = m.experts;
  const TensorId gate = m.squared_relu ? kNoTensor : b.linear(x, block + ".shared.gate", m.C, e.FS),
                 up = b.linear(x, block + ".shared.up", m.C, e.FS);
  const TensorId wide = m.squared_relu ? b.squared_relu(up) : b.op("swiglu", {gate, up});
  const TensorId y = b.linear(wide, block + ".shared.down", e.FS, m.C);
  if (!e.shared_gate) return y;
  const std::vector<int64_t> last = {2};
  const TensorId weight = b.op("sigmoid", {b.linear(x, block + ".shared.router", m.C, 1)});  // [B, T, 1]
  const TensorId each = b.op("broadcast", {b.op("reduce_sum", {weight}, {{"axes", last}}), y}, {{"axes", last}});
  return b.op("mul", {y, each});
}

}  // namespace

TensorId experts(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x, TensorId router_x,
                 AuxiliaryLoss& auxiliary) {
  const TensorId own = routed(b, m, block, x, router_x, auxiliary);
  return m.experts.FS == 0 ? own : b.op("add", {own, shared(b, m, block, x)});
}

}  // namespace tessera
