#include "graph/transform/scaled_products.h"

#include <optional>
#include <set>

#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"

namespace tessera {
namespace {

bool is_plain_product(const Node& node) {
  return node.op->weight.use == WeightUse::kProduct && node.inputs.size() == 2 && node.outputs.size() == 1 &&
         attr_string_or(node.attrs, "activation", "none") == "none";
}

// Whether the op's weight is at this input, and its product can be scaled.
bool scales_at(const Node& node, size_t input) {
  return static_cast<int>(input) == node.op->weight.operand && is_plain_product(node);
}

}  // namespace

bool can_scale_products(const Graph& graph, std::string_view parameter) {
  const std::optional<TensorId> id = graph.find_tensor(parameter);
  bool is_read = false;
  for (const Node& node : graph.nodes())
    for (size_t input = 0; id && input < node.inputs.size(); ++input) {
      if (node.inputs[input] != *id) continue;
      if (!scales_at(node, input)) return false;
      is_read = true;
    }
  return is_read;
}

Result<Graph> with_scaled_products(const Graph& graph, const ProductScales& scales) {
  GraphCopy copy(graph);
  std::set<std::string_view> scaled;
  const auto scale_of = [&](TensorId id) -> const float* {
    const Tensor& tensor = graph.tensor(id);
    const auto found = tensor.kind == TensorKind::kParameter ? scales.find(tensor.name) : scales.end();
    return found == scales.end() ? nullptr : &found->second;
  };
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = graph.node(tensor.producer);
    const float* factor = nullptr;
    for (size_t input = 0; input < node.inputs.size(); ++input) {
      const float* found = scale_of(node.inputs[input]);
      if (!found) continue;
      const std::string& name = graph.tensor(node.inputs[input]).name;
      if (!scales_at(node, input))
        return Status(
            StatusCode::kUnsupported,
            format("the products of '{}' are to be scaled, but {} reads it; wanted matmul without bias "
                   "and activation",
                   name, node.op->name));
      factor = found;
      scaled.insert(name);
    }
    if (!factor) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      continue;
    }
    Graph& made = copy.graph();
    made.set_scope(node.scope);
    TSR_ASSIGN_OR_RETURN(
        const auto product,
        made.add_node(node.op->name, std::vector{copy.mapped(node.inputs[0]), copy.mapped(node.inputs[1])},
                      node.attrs));
    TSR_ASSIGN_OR_RETURN(const TensorId result,
                         made.add("scale", {product[0]}, {{"factor", static_cast<double>(*factor)}}));
    made.set_scope("");
    TSR_RETURN_IF_ERROR(copy.substitute(id, result));
  }
  for (const auto& [name, factor] : scales)
    if (!scaled.contains(name))
      return Status(
          StatusCode::kUnsupported,
          format("the products of '{}' are to be scaled by {}, but the graph has none", name, factor));
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
