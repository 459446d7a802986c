#include "graph/transform/canonical_order.h"

#include <algorithm>
#include <vector>

#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

class CanonicalOrder {
 public:
  explicit CanonicalOrder(const Graph& graph)
      : graph_(graph), copy_(graph), layers_(graph.tensors().size()), is_weight_(graph.tensors().size()) {}

  Result<Graph> run() {
    find_layers();
    std::vector<TensorId> roots;
    for (const NamedTensor& output : graph_.outputs()) roots.push_back(output.tensor);
    for (const Update& update : graph_.updates()) roots.push_back(update.value);
    for (const Gradient& gradient : graph_.gradients()) roots.push_back(gradient.gradient);
    placed_.assign(graph_.nodes().size(), false);
    for (const NodeId id : producers_of(roots)) place(id);
    for (size_t n = 0; n < placed_.size(); ++n) place(NodeId(static_cast<uint32_t>(n)));

    TSR_RETURN_IF_ERROR(copy_inputs());
    for (const NodeId id : order_) {
      for (const TensorId operand : graph_.node(id).inputs) TSR_RETURN_IF_ERROR(copy_source(operand));
      TSR_RETURN_IF_ERROR(copy_.copy_node(id));
    }
    for (size_t t = 0; t < graph_.tensors().size(); ++t)
      TSR_RETURN_IF_ERROR(copy_source(TensorId(static_cast<uint32_t>(t))));
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  void find_layers() {
    for (size_t t = 0; t < graph_.tensors().size(); ++t) {
      const Tensor& tensor = graph_.tensors()[t];
      if (tensor.producer == kNoNode) {
        is_weight_[t] = tensor.kind == TensorKind::kParameter || tensor.kind == TensorKind::kConstant;
        continue;
      }
      const std::vector<TensorId>& operands = graph_.node(tensor.producer).inputs;
      const auto weights =
          std::ranges::count_if(operands, [&](TensorId id) { return is_weight_[index(id)]; });
      is_weight_[t] = weights > 0 && weights == std::ssize(operands);
      for (const TensorId id : operands) layers_[t] = std::max(layers_[t], layers_[index(id)]);
      if (weights > 0 && !is_weight_[t]) ++layers_[t];
    }
  }

  // Producers of `tensors`, in the order of visits, each once.
  std::vector<NodeId> producers_of(std::vector<TensorId> tensors) const {
    std::ranges::stable_sort(
        tensors, {}, [&](TensorId id) { return std::pair(bool{is_weight_[index(id)]}, layers_[index(id)]); });
    std::vector<NodeId> nodes;
    for (const TensorId id : tensors)
      if (const NodeId producer = graph_.tensor(id).producer;
          producer != kNoNode && std::ranges::find(nodes, producer) == nodes.end())
        nodes.push_back(producer);
    return nodes;
  }

  // Places `root` after all nodes that it needs. Without recursion, since models are deep.
  void place(NodeId root) {
    struct Visit {
      NodeId node;
      std::vector<NodeId> before;
      size_t next = 0;
    };
    std::vector<Visit> path;
    const auto enter = [&](NodeId id) {
      if (!placed_[index(id)]) path.push_back({id, producers_of(graph_.node(id).inputs)});
    };
    enter(root);
    while (!path.empty()) {
      Visit& last = path.back();
      if (last.next < last.before.size()) {
        enter(last.before[last.next++]);
        continue;
      }
      placed_[index(last.node)] = true;
      order_.push_back(last.node);
      path.pop_back();
    }
  }

  Status copy_inputs() {
    for (const NodeId id : order_)
      for (const TensorId operand : graph_.node(id).inputs)
        if (graph_.tensor(operand).kind == TensorKind::kInput) TSR_RETURN_IF_ERROR(copy_source(operand));
    return {};
  }

  // Copies a tensor without a producer, once.
  Status copy_source(TensorId id) {
    if (graph_.tensor(id).producer != kNoNode || copy_.mapped(id) != kNoTensor) return {};
    return copy_.copy_tensor(id);
  }

  const Graph& graph_;
  GraphCopy copy_;
  std::vector<int32_t> layers_;  // by tensor: layers on the longest path to it
  std::vector<bool> is_weight_;  // by tensor: a parameter, or computed from parameters alone
  std::vector<bool> placed_;     // by node
  std::vector<NodeId> order_;
};

}  // namespace

Result<Graph> in_canonical_order(const Graph& graph) {
  if (std::ranges::any_of(graph.nodes(), [](const Node& node) {
        return node.phase != Phase::kForward || node.forward != kNoNode;
      }))
    return graph;
  return CanonicalOrder(graph).run();
}

}  // namespace tessera
