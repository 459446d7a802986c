#include "graph/autodiff.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "graph/graph_text.h"

namespace tessera {

// Differentiator: visits the forward nodes in reverse and asks each op's vjp for the gradients of its
// operands.
class Differentiator {
 public:
  explicit Differentiator(Graph& graph)
      : graph_(graph),
        forward_nodes_(graph.nodes().size()),
        forward_tensors_(graph.tensors().size()),
        needs_(forward_tensors_),
        contributions_(forward_tensors_) {}

  Status run(TensorId loss);

 private:
  friend class VjpBuilder;

  void find_needs();
  Status seed(TensorId loss);
  Status visit(NodeId id);
  Result<std::optional<TensorId>> total_gradient(TensorId tensor, NodeId forward);
  Status record_parameter_gradients();
  void mark_weight_nodes();

  Graph& graph_;
  const size_t forward_nodes_, forward_tensors_;
  std::vector<bool> needs_;  // by forward tensor: depends on a trainable parameter
  std::vector<std::vector<TensorId>>
      contributions_;                           // by forward tensor: addends of its gradient, last use first
  std::vector<TensorId> activation_gradients_;  // emitted tensors that vjps of other nodes read

  // The node being differentiated: a copy, since emitting nodes reallocates the graph's arrays.
  Node node_;
  std::vector<TensorType> input_types_, output_types_;
  std::vector<std::optional<TensorId>> output_grads_;
};

const Node& VjpBuilder::node() const { return owner_.node_; }
TensorId VjpBuilder::input(int i) const { return owner_.node_.inputs.at(static_cast<size_t>(i)); }
TensorId VjpBuilder::output(int i) const { return owner_.node_.outputs.at(static_cast<size_t>(i)); }
const TensorType& VjpBuilder::input_type(int i) const {
  return owner_.input_types_.at(static_cast<size_t>(i));
}
const TensorType& VjpBuilder::output_type(int i) const {
  return owner_.output_types_.at(static_cast<size_t>(i));
}
std::span<const Attr> VjpBuilder::attrs() const { return owner_.node_.attrs; }
int VjpBuilder::input_count() const { return static_cast<int>(owner_.node_.inputs.size()); }

std::optional<TensorId> VjpBuilder::output_grad(int i) const {
  return owner_.output_grads_.at(static_cast<size_t>(i));
}
bool VjpBuilder::needs_grad(int i) const { return owner_.needs_[index(input(i))]; }

Result<TensorId> VjpBuilder::emit(std::string_view op, std::initializer_list<TensorId> inputs,
                                  std::vector<Attr> attrs) {
  return owner_.graph_.add(op, inputs, std::move(attrs));
}

Result<std::vector<TensorId>> VjpBuilder::emit_all(std::string_view op, std::span<const TensorId> inputs,
                                                   std::vector<Attr> attrs) {
  return owner_.graph_.add_node(op, inputs, std::move(attrs));
}

Status VjpBuilder::set_input_grad(int i, TensorId grad) {
  if (!needs_grad(i)) return {};
  if (owner_.graph_.type(grad) != input_type(i))
    return Status(StatusCode::kInternal, format("the gradient of operand {} is {}, the operand {}", i,
                                                type_text(owner_.graph_.type(grad), owner_.graph_),
                                                type_text(input_type(i), owner_.graph_)));
  owner_.contributions_[index(input(i))].push_back(grad);
  if (owner_.graph_.tensor(input(i)).kind == TensorKind::kActivation)
    owner_.activation_gradients_.push_back(grad);
  return {};
}

void Differentiator::find_needs() {
  for (size_t i = 0; i < forward_tensors_; ++i) {
    const Tensor& tensor = graph_.tensors()[i];
    if (tensor.kind == TensorKind::kParameter) {
      needs_[i] = tensor.trainable && info(tensor.type.dtype).is_float;
    } else if (tensor.producer != kNoNode && info(tensor.type.dtype).is_float) {
      const Node& producer = graph_.node(tensor.producer);
      for (size_t operand = 0; operand < producer.inputs.size(); ++operand) {
        const bool values = std::ranges::find(producer.op->shape_only, static_cast<int>(operand)) ==
                            producer.op->shape_only.end();
        if (values && needs_[index(producer.inputs[operand])]) needs_[i] = true;
      }
    }
  }
}

// Seeds d loss / d loss = 1, computed by ops alone: exp(0).
Status Differentiator::seed(TensorId loss) {
  graph_.set_phase(Phase::kBackwardInput, graph_.tensor(loss).producer);
  graph_.set_scope(graph_.node(graph_.tensor(loss).producer).scope);
  TSR_ASSIGN_OR_RETURN(const TensorId zero, graph_.add("zeros_like", {loss}));
  TSR_ASSIGN_OR_RETURN(const TensorId one, graph_.add("exp", {zero}));
  contributions_[index(loss)].push_back(one);
  activation_gradients_.push_back(one);
  return {};
}

// Sums the contributions so far, by a chain of adds.
Result<std::optional<TensorId>> Differentiator::total_gradient(TensorId tensor, NodeId forward) {
  const std::vector<TensorId>& addends = contributions_[index(tensor)];
  if (addends.empty()) return std::optional<TensorId>();
  TensorId total = addends[0];
  graph_.set_phase(Phase::kBackwardInput, forward);
  for (size_t i = 1; i < addends.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(total, graph_.add("add", {total, addends[i]}));
    if (forward != kNoNode) activation_gradients_.push_back(total);
  }
  return std::optional<TensorId>(total);
}

Status Differentiator::visit(NodeId id) {
  node_ = graph_.node(id);
  if (std::ranges::none_of(node_.outputs, [&](TensorId output) {
        return needs_[index(output)] && !contributions_[index(output)].empty();
      }))
    return {};
  if (node_.op->vjp == nullptr)
    return Status(StatusCode::kUnsupported,
                  format("{} '{}' has no gradient, and trainable parameters lie before it", node_.op->name,
                         node_.scope));

  graph_.set_scope(node_.scope);
  output_grads_.clear();
  for (TensorId output : node_.outputs) {
    TSR_ASSIGN_OR_RETURN(const std::optional<TensorId> total, total_gradient(output, id));
    output_grads_.push_back(total);
  }
  input_types_.clear();
  output_types_.clear();
  for (TensorId input : node_.inputs) input_types_.push_back(graph_.type(input));
  for (TensorId output : node_.outputs) output_types_.push_back(graph_.type(output));
  graph_.set_phase(Phase::kBackwardInput, id);
  VjpBuilder builder(*this, id);
  return node_.op->vjp(builder).with_context(format("gradient of {} '{}'", node_.op->name, node_.scope));
}

Status Differentiator::record_parameter_gradients() {
  for (size_t i = 0; i < forward_tensors_; ++i) {
    const TensorId parameter{static_cast<uint32_t>(i)};
    if (graph_.tensor(parameter).kind != TensorKind::kParameter || contributions_[i].empty()) continue;
    graph_.set_scope(graph_.tensor(parameter).name);
    TSR_ASSIGN_OR_RETURN(const std::optional<TensorId> total, total_gradient(parameter, kNoNode));
    graph_.add_gradient(parameter, *total);
    // Names serve readers; a tensor that is the gradient of two parameters keeps its first name.
    const std::string name = graph_.tensor(parameter).name + ".grad";
    if (graph_.tensor(*total).name.starts_with('%') && !graph_.find_tensor(name))
      TSR_RETURN_IF_ERROR(graph_.rename(*total, name));
  }
  return {};
}

// Marks the nodes of a vjp. A node is backward_input when one of its results leads, within that vjp, to the
// gradient of an activation; the others make only parameter gradients.
void Differentiator::mark_weight_nodes() {
  std::vector<bool> leads(graph_.tensors().size());
  for (TensorId gradient : activation_gradients_) leads[index(gradient)] = true;
  for (size_t i = graph_.nodes().size(); i-- > forward_nodes_;) {
    const NodeId id{static_cast<uint32_t>(i)};
    const Node& node = graph_.node(id);
    if (std::ranges::none_of(node.outputs, [&](TensorId output) { return leads[index(output)]; })) {
      graph_.set_phase_of(id, Phase::kBackwardWeight);
      continue;
    }
    for (TensorId input : node.inputs) {
      const NodeId producer = graph_.tensor(input).producer;
      if (producer != kNoNode && graph_.node(producer).forward == node.forward) leads[index(input)] = true;
    }
  }
}

Status Differentiator::run(TensorId loss) {
  if (index(loss) >= forward_tensors_ || graph_.type(loss).shape.rank() != 0 ||
      !info(graph_.type(loss).dtype).is_float)
    return Status(StatusCode::kInvalidArgument,
                  index(loss) >= forward_tensors_
                      ? std::string("the loss does not exist")
                      : format("the loss '{}' is {}, wanted a scalar such as f32[]", graph_.tensor(loss).name,
                               type_text(graph_.type(loss), graph_)));
  find_needs();
  if (!needs_[index(loss)] || graph_.tensor(loss).producer == kNoNode)
    return Status(StatusCode::kInvalidArgument,
                  format("the loss '{}' depends on no trainable parameter", graph_.tensor(loss).name));
  TSR_RETURN_IF_ERROR(seed(loss));
  for (size_t i = forward_nodes_; i-- > 0;) TSR_RETURN_IF_ERROR(visit(NodeId(static_cast<uint32_t>(i))));
  TSR_RETURN_IF_ERROR(record_parameter_gradients());
  mark_weight_nodes();
  return {};
}

Status differentiate(Graph& graph, TensorId loss) {
  const std::string scope = graph.scope();
  const Status status = Differentiator(graph).run(loss);
  graph.set_scope(scope);
  graph.set_phase(Phase::kForward);
  return status;
}

}  // namespace tessera
