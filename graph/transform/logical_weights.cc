// The inverse of with_stored_weights: narrow weights become f32 parameters again.
#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

namespace {

class Widening {
 public:
  explicit Widening(const Graph& source) : copy_(source) {}

  Result<LogicalGraph> run() {
    const Graph& source = copy_.source();
    rows_.assign(source.tensors().size(), kNoTensor);
    activated_.resize(source.tensors().size());
    find_widened();
    find_activations();
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(widened_[i] ? add_parameter(id) : copy_.copy_tensor(id));
      } else if (tensor.output_index == 0) {
        TSR_RETURN_IF_ERROR(add_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return LogicalGraph{std::move(copy_.graph()), std::move(stored_)};
  }

 private:
  // Returns the operand of a node that may be narrow; -1 for none.
  int narrow_operand(const Node& node) const {
    const WeightOperand& weight = node.op->weight;
    if (weight.stored_read == nullptr) return -1;
    const Graph& source = copy_.source();
    const DType type = source.type(node.inputs[static_cast<size_t>(weight.operand)]).dtype;
    return weight.operand == 0 || source.type(node.inputs[0]).dtype != type ? weight.operand : -1;
  }

  // Finds narrow parameters without other readers.
  void find_widened() {
    const Graph& source = copy_.source();
    widened_.resize(source.tensors().size());
    for (const TensorId id : source.tensors_of_kind(TensorKind::kParameter))
      widened_[index(id)] = is_narrow_type(source.type(id).dtype);
    for (const Node& node : source.nodes())
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (static_cast<int>(i) != narrow_operand(node)) widened_[index(node.inputs[i])] = false;
    for (const NamedTensor& output : source.outputs()) widened_[index(output.tensor)] = false;
    for (const Update& update : source.updates()) widened_[index(update.target)] = false;
  }

  Status add_parameter(TensorId id) {
    const Tensor& tensor = copy_.source().tensor(id);
    TSR_ASSIGN_OR_RETURN(const TensorId now, copy_.graph().add_tensor(
                                                 tensor.name, {DType::kF32, tensor.type.shape}, tensor.kind));
    if (!tensor.trainable) copy_.graph().set_trainable(now, false);
    copy_.replace(id, now);
    stored_.emplace(tensor.name, tensor.type.dtype);
    return {};
  }

  Status add_node(NodeId id) {
    const Node& node = copy_.source().node(id);
    const int operand = narrow_operand(node);
    const bool is_widened = operand >= 0 && widened_[index(node.inputs[static_cast<size_t>(operand)])];
    if (activated_[index(node.outputs[0])]) return {};  // fused into its matmul
    if (is_cast_of_rows(node)) {
      const TensorId rows = rows_[index(node.inputs[0])];
      copy_.replace(node.outputs[0], rows);
      return keep_name(node.outputs[0], rows);
    }
    if (!is_widened) return copy_.copy_node(id);
    if (operand == 0) return add_weight_first(id);
    if (node.phase != Phase::kForward)
      return Status(StatusCode::kFailedPrecondition,
                    "weights are widened before a graph is differentiated: this one has gradients");
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    // The operands of a product have one type: activations in 16 bits read a cast.
    Graph& graph = copy_.graph();
    graph.set_scope(node.scope);
    if (const DType dtype = graph.type(inputs[0]).dtype; dtype != DType::kF32) {
      TensorId& weight = inputs[static_cast<size_t>(operand)];
      TSR_ASSIGN_OR_RETURN(weight, graph.add("cast", {weight}, {{"dtype", to_text(dtype)}}));
    }
    const std::string_view logical = node.op->weight.logical_op;
    const TensorId active = logical.empty() ? kNoTensor : joining_activation(node, *find_op(logical));
    const OpDef& op = logical.empty() ? *node.op : *find_op(logical);
    TSR_ASSIGN_OR_RETURN(const auto results, graph.add_node(op.name, inputs, logical_attrs(node, op, active)));
    graph.set_scope("");
    copy_.replace_node(id, NodeId{static_cast<uint32_t>(graph.nodes().size() - 1)});
    if (active != kNoTensor) {
      activated_[index(active)] = true;
      copy_.replace(active, results[0]);
      TSR_RETURN_IF_ERROR(keep_name(active, results[0]));
    }
    copy_.replace(node.outputs[0], results.back());
    return keep_name(node.outputs[0], results.back());
  }

  const OpDef& maker_of(TensorId tensor) const {
    return *copy_.source().node(copy_.source().tensor(tensor).producer).op;
  }

  // Returns the result of the activation that `op`, whose stored form the node
  // is, has as an attribute; kNoTensor where storing would not fuse it again.
  TensorId joining_activation(const Node& node, const OpDef& op) const {
    const TensorId active = activation_of_[index(node.outputs[0])];
    if (active == kNoTensor) return kNoTensor;
    const auto attrs = logical_attrs(node, op, active);
    return op.weight.stored_read(node.inputs.size(), attrs) == StoredRead::kRefused ? kNoTensor : active;
  }

  std::vector<Attr> logical_attrs(const Node& node, const OpDef& op, TensorId active) const {
    std::vector<Attr> attrs;
    if (&op == node.op) {  // with an f32 weight activations are not rounded, and TF32 stays open
      for (const Attr& attr : node.attrs)
        if (attr.name != "activations" && attr.name != "allow_tf32") attrs.push_back(attr);
      return attrs;
    }
    attrs.push_back({"trans_w", node.op->weight.logical_trans_w});
    if (active != kNoTensor) attrs.push_back({"activation", std::string(maker_of(active).name)});
    return attrs;
  }

  // By tensor, the result of its only reader, an activation that a
  // matmul can have as an attribute; kNoTensor for none or several.
  void find_activations() {
    const Graph& source = copy_.source();
    std::vector<int> readers(source.tensors().size());
    activation_of_.assign(source.tensors().size(), kNoTensor);
    for (const Node& node : source.nodes()) {
      if (!node.op->is_activation) continue;
      const size_t pre = index(node.inputs[0]);
      const bool is_attribute = has_default_attrs(*node.op, node.attrs);
      activation_of_[pre] = ++readers[pre] == 1 && is_attribute ? node.outputs[0] : kNoTensor;
    }
  }

  // A cast to f32 of rows that were looked up in 16 bits.
  bool is_cast_of_rows(const Node& node) const {
    return node.op->is_cast && rows_[index(node.inputs[0])] != kNoTensor &&
           copy_.source().type(node.outputs[0]).dtype == DType::kF32;
  }

  // Its result may have had the weight's type, as rows of a table do, and is f32 now. Readers in 16 bits read a cast.
  Status add_weight_first(NodeId id) {
    const Node& node = copy_.source().node(id);
    const TensorId old = node.outputs[0];
    TSR_RETURN_IF_ERROR(copy_.copy_node(id));
    if (copy_.source().type(old).dtype == copy_.graph().type(copy_.mapped(old)).dtype) return {};
    rows_[index(old)] = copy_.mapped(old);
    const auto reads_narrow = [&](const Node& reader) {
      return std::ranges::find(reader.inputs, old) != reader.inputs.end() && !is_cast_of_rows(reader);
    };
    if (std::ranges::none_of(copy_.source().nodes(), reads_narrow) &&
        std::ranges::none_of(copy_.source().outputs(),
                             [&](const NamedTensor& it) { return it.tensor == old; }))
      return {};
    TSR_ASSIGN_OR_RETURN(
        const TensorId cast,
        copy_.graph().add("cast", {copy_.mapped(old)}, {{"dtype", to_text(copy_.source().type(old).dtype)}}));
    copy_.replace(old, cast);
    return {};
  }

  Status keep_name(TensorId old, TensorId now) {
    const std::string& name = copy_.source().tensor(old).name;
    return name.starts_with('%') ? Status() : copy_.graph().rename(now, name);
  }

  GraphCopy copy_;
  StoredTypes stored_;
  std::vector<bool> widened_;    // by tensor of the source
  std::vector<TensorId> activation_of_;
  std::vector<bool> activated_;  // by tensor of the source: results of activations fused into a matmul
  std::vector<TensorId> rows_;   // by tensor of the source: look-ups in f32 that were in 16 bits there
};

}  // namespace

Result<LogicalGraph> with_logical_weights(const Graph& graph) {
  const auto parameters = graph.tensors_of_kind(TensorKind::kParameter);
  const bool any =
      std::ranges::any_of(parameters, [&](TensorId id) { return is_narrow_type(graph.type(id).dtype); });
  if (!any) return LogicalGraph{graph, {}};
  return Widening(graph).run();
}

}  // namespace tessera
