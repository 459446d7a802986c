// Muon (Jordan et al., 2024): the direction of a matrix is its momentum, made nearly orthogonal by five steps
// of Newton and Schulz. It applies to matrices of blocks, recognised by a number in their names; AdamW updates
// embeddings, heads and other tensors. State "<parameter>.momentum". The iteration is one node, which needs
// the whole matrix: with several ranks one of them computes it (parallel/strategy/propagator_owners.cc).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "graph/optim/optimizers.h"

namespace tessera {

namespace {

// "block.0.q.weight"
bool has_number(std::string_view name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    if (!word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; }))
      return true;
    begin = end + 1;
  }
  return false;
}

// Returns whether the graph allows products in fewer bits than f32; the iteration's products then are, too.
bool has_tf32_matmuls(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    if (node.op->weight.use != WeightUse::kProduct) return false;
    const DType dtype = graph.type(node.inputs[0]).dtype;
    return dtype == DType::kBF16 || dtype == DType::kF16 || attr_i64_or(node.attrs, "allow_tf32", 0) == 1;
  });
}

// Returns whether the matrix is stored as [out, in], by the products that read it.
bool is_transposed(const Graph& graph, TensorId parameter) {
  std::vector<TensorId> copies = {parameter};
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kForward || node.inputs.empty()) continue;
    const auto reads = [&](TensorId id) { return std::ranges::find(copies, id) != copies.end(); };
    if (node.op->is_cast && reads(node.inputs[0])) copies.push_back(node.outputs[0]);
    const WeightOperand& weight = node.op->weight;
    if (weight.use == WeightUse::kProduct && reads(node.inputs[static_cast<size_t>(weight.operand)]))
      return attr_i64(node.attrs, "trans_w") == 1;
  }
  return false;
}

// weight_decay: of both; momentum: of Muon alone; beta1, beta2, eps: of AdamW's part. muon_scale original:
// sqrt(max(1, out / in)) in place of 0.2 sqrt(max(out, in)), which gives directions the size of
// AdamW's (Liu et al., "Muon is scalable for LLM training", 2025), so that one rate serves both.
constexpr std::string_view kMuonScales[] = {"match_rms_adamw", "original"};
constexpr OptimizerSetting kMuonSettings[] = {{"momentum", 0.95},
                                              {"weight_decay", 0.1, 0, kMostDecay},
                                              {"beta1", 0.9, 0, kMostBeta},
                                              {"beta2", 0.95, 0, kMostBeta},
                                              {"eps", 1e-8},
                                              {"muon_scale", 0, 0, 1, kMuonScales}};

Status emit_muon(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  Graph& graph = context.graph;
  const Tensor& parameter = graph.tensor(context.parameter);
  if (parameter.type.shape.rank() != 2 || !has_number(parameter.name)) return emit_adamw(context, hyper);
  const Shape shape = parameter.type.shape;
  TSR_ASSIGN_OR_RETURN(const TensorId momentum, add_optimizer_state(context, "momentum"));
  TSR_ASSIGN_OR_RETURN(
      const std::vector<TensorId> made,
      graph.add_node("muon_momentum", std::vector{momentum, context.gradient, context.gradient_scale},
                     {{"momentum", hyper.at("momentum")}}));
  TSR_RETURN_IF_ERROR(add_named_update(graph, momentum, made[0]));
  const int64_t allows_tf32 = has_tf32_matmuls(graph) ? 1 : 0;
  TSR_ASSIGN_OR_RETURN(const TensorId direction,
                       graph.add("orthogonalize", {made[1]}, {{"allow_tf32", allows_tf32}}));

  const bool transposed = is_transposed(graph, context.parameter);
  const auto out = static_cast<double>(shape[transposed ? 0 : 1]);
  const auto in = static_cast<double>(shape[transposed ? 1 : 0]);
  const double scale =
      hyper.at("muon_scale") != 0 ? std::sqrt(std::max(1.0, out / in)) : 0.2 * std::sqrt(std::max(out, in));
  std::vector<Attr> attrs = {{"scale", scale}, {"weight_decay", hyper.at("weight_decay")}};
  if (const auto at = hyper.find("lr_scale"); at != hyper.end()) attrs.push_back({"lr_scale", at->second});
  TSR_ASSIGN_OR_RETURN(
      const std::vector<TensorId> stepped,
      graph.add_node("muon_update",
                     std::vector{context.parameter, direction, context.lr, context.gradient_scale},
                     std::move(attrs)));
  return add_named_update(graph, context.parameter, stepped[0]);
}

}  // namespace

extern const OptimizerDef kMuon = {
    .name = "muon", .settings = kMuonSettings, .emit = emit_muon, .has_owners = true};

}  // namespace tessera
