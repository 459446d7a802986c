// Muon (Jordan et al., 2024): the momentum of a matrix, made nearly orthogonal by five steps of Newton and Schulz, is its
// direction. Of matrices of blocks, which have a number in their names; embeddings, heads and what is no matrix are updated
// by AdamW. State "<parameter>.momentum". The products of the iteration are ordinary nodes on whole matrices.
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

// Whether the graph's products may be computed in fewer bits than f32: the iteration's then may, too.
bool has_narrow_products(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    if (node.op->name != "matmul") return false;
    const DType dtype = graph.type(node.inputs[0]).dtype;
    return dtype == DType::kBF16 || dtype == DType::kF16 || attr_i64(node.attrs, "allow_tf32") == 1;
  });
}

// Whether the matrix is stored as [out, in], as the products that read it say.
bool is_transposed(const Graph& graph, TensorId parameter) {
  std::vector<TensorId> copies = {parameter};
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kForward || node.inputs.empty()) continue;
    const auto reads = [&](TensorId id) { return std::ranges::find(copies, id) != copies.end(); };
    if (node.op->name == "cast" && reads(node.inputs[0])) copies.push_back(node.outputs[0]);
    if (node.op->name.starts_with("matmul") && node.inputs.size() > 1 && reads(node.inputs[1]))
      return attr_i64(node.attrs, "trans_w") == 1;
  }
  return false;
}

// Coefficients of the quintic that brings singular values near 1 (Jordan et al.).
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kIterations = 5;

// x [M, N] with singular values near 1 in place of its own.
Result<TensorId> orthogonalize(Graph& graph, TensorId matrix) {
  const Shape shape = graph.type(matrix).shape;
  const bool wide = shape[0] <= shape[1];
  const int64_t narrow = has_narrow_products(graph) ? 1 : 0;
  const auto product = [&](TensorId x, TensorId w, int64_t trans_w) {
    return graph.add("matmul", {x, w}, {{"trans_w", trans_w}, {"allow_tf32", narrow}});
  };
  TSR_ASSIGN_OR_RETURN(const TensorId squares, graph.add("sum_squares", {matrix}));
  TSR_ASSIGN_OR_RETURN(const TensorId inverse, graph.add("inverse_norm", {squares}));
  TSR_ASSIGN_OR_RETURN(TensorId x, graph.add("scale_by", {matrix, inverse}));
  for (int i = 0; i < kIterations; ++i) {
    // The smaller of x x^T and x^T x; both polynomials give the same x.
    TSR_ASSIGN_OR_RETURN(
        const TensorId gram,
        wide ? product(x, x, 1) : graph.add("matmul_weight_grad", {x, x}, {{"allow_tf32", narrow}}));
    TSR_ASSIGN_OR_RETURN(const TensorId square, product(gram, gram, 0));
    TSR_ASSIGN_OR_RETURN(const TensorId factor,
                         graph.add("weighted_sum", {gram, square}, {{"a", kB}, {"b", kC}}));
    TSR_ASSIGN_OR_RETURN(const TensorId moved, wide ? product(factor, x, 0) : product(x, factor, 0));
    TSR_ASSIGN_OR_RETURN(x, graph.add("weighted_sum", {x, moved}, {{"a", kA}, {"b", 1.0}}));
  }
  return x;
}

}  // namespace

// momentum, weight_decay: of both; beta1, beta2, eps: of what AdamW updates. original: 1 for sqrt(max(1, out / in)) in
// place of 0.2 sqrt(max(out, in)), which gives directions the size of AdamW's (Liu et al., "Muon is scalable for LLM
// training", 2025), so that one rate serves both.
std::map<std::string, double> muon_defaults() {
  return {{"momentum", 0.95}, {"weight_decay", 0.1}, {"beta1", 0.9},
          {"beta2", 0.95},    {"eps", 1e-8},         {"original_scale", 0.0}};
}

Status emit_muon(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  Graph& graph = context.graph;
  const Tensor& parameter = graph.tensor(context.parameter);
  if (parameter.type.shape.rank() != 2 || !has_number(parameter.name)) {
    std::map<std::string, double> own = hyper;
    own.erase("momentum");
    own.erase("original_scale");
    return emit_adamw(context, own);
  }
  const Shape shape = parameter.type.shape;
  TSR_ASSIGN_OR_RETURN(const TensorId momentum, add_optimizer_state(context, "momentum"));
  TSR_ASSIGN_OR_RETURN(
      const std::vector<TensorId> made,
      graph.add_node("muon_momentum", std::vector{momentum, context.gradient, context.gradient_scale},
                     {{"momentum", hyper.at("momentum")}}));
  TSR_RETURN_IF_ERROR(add_named_update(graph, momentum, made[0]));
  TSR_ASSIGN_OR_RETURN(const TensorId direction, orthogonalize(graph, made[1]));

  const bool transposed = is_transposed(graph, context.parameter);
  const auto out = static_cast<double>(shape[transposed ? 0 : 1]);
  const auto in = static_cast<double>(shape[transposed ? 1 : 0]);
  const double scale = hyper.at("original_scale") != 0 ? std::sqrt(std::max(1.0, out / in))
                                                       : 0.2 * std::sqrt(std::max(out, in));
  std::vector<Attr> attrs = {{"scale", scale}, {"weight_decay", hyper.at("weight_decay")}};
  if (const auto at = hyper.find("lr_scale"); at != hyper.end()) attrs.push_back({"lr_scale", at->second});
  TSR_ASSIGN_OR_RETURN(
      const std::vector<TensorId> stepped,
      graph.add_node("muon_update",
                     std::vector{context.parameter, direction, context.lr, context.gradient_scale},
                     std::move(attrs)));
  return add_named_update(graph, context.parameter, stepped[0]);
}

}  // namespace tessera
