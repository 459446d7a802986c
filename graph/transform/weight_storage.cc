#include "graph/transform/weight_storage.h"

#include <algorithm>
#include <vector>

#include "graph/base/blocks/fitting_type.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

// Uses: the readers of a parameter, directly or through a cast to 16 bits.
struct Uses {
  int wanted = 0, allowed = 0;  // readers that take the stored weight (StoredRead)
  int others = 0;               // readers of the parameter itself
  int others_of_cast = 0;
  std::optional<DType> cast_to;
  bool two_casts = false;
  bool is_sensitive = false;  // a table of positions or a router: small, and errors in it cost much
};

// Returns whether rows of `a` take fewer bytes than rows of `b`.
bool is_narrower(DType a, DType b) {
  const DTypeInfo &left = info(a), &right = info(b);
  return int64_t{left.block_bytes} * right.block_elements < int64_t{right.block_bytes} * left.block_elements;
}

class Storing {
 public:
  Storing(const Graph& source, const WeightStorage& storage) : copy_(source), storage_(storage) {}

  Result<Graph> run() {
    const Graph& source = copy_.source();
    find_uses();
    find_sensitive();
    stored_.resize(source.tensors().size());
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(tensor.kind == TensorKind::kParameter ? add_parameter(id)
                                                                  : copy_.copy_tensor(id));
      } else if (tensor.output_index == 0) {
        TSR_RETURN_IF_ERROR(add_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  // Returns the parameter that a tensor is, directly or by a cast to 16 bits; kNoTensor for others.
  TensorId parameter_of(TensorId id) const {
    const Graph& source = copy_.source();
    const Tensor* tensor = &source.tensor(id);
    if (tensor->producer != kNoNode && source.node(tensor->producer).op->is_cast &&
        is_half_type(tensor->type.dtype)) {
      id = source.node(tensor->producer).inputs[0];
      tensor = &source.tensor(id);
    }
    return tensor->kind == TensorKind::kParameter && tensor->type.dtype == DType::kF32 ? id : kNoTensor;
  }

  // How the node reads input i as a stored weight.
  static StoredRead read_of(const Node& node, size_t i) {
    const WeightOperand& weight = node.op->weight;
    const bool is_weight = weight.operand == static_cast<int>(i) && weight.stored_read != nullptr;
    return is_weight ? weight.stored_read(node.inputs.size(), node.attrs) : StoredRead::kRefused;
  }

  void find_uses() {
    const Graph& source = copy_.source();
    uses_.resize(source.tensors().size());
    const auto note_other = [&](TensorId id) {
      if (const TensorId parameter = parameter_of(id); parameter != kNoTensor)
        ++(parameter == id ? uses_[index(parameter)].others : uses_[index(parameter)].others_of_cast);
    };
    for (const Node& node : source.nodes())
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const TensorId parameter = parameter_of(node.inputs[i]);
        if (parameter == kNoTensor) continue;
        Uses& uses = uses_[index(parameter)];
        if (const StoredRead read = read_of(node, i); read != StoredRead::kRefused) {
          ++(read == StoredRead::kWanted ? uses.wanted : uses.allowed);
        } else if (parameter == node.inputs[i] && node.op->is_cast &&
                   is_half_type(source.type(node.outputs[0]).dtype)) {
          const DType to = source.type(node.outputs[0]).dtype;
          uses.two_casts |= uses.cast_to && *uses.cast_to != to;
          uses.cast_to = to;
        } else {
          note_other(node.inputs[i]);
        }
      }
    for (const NamedTensor& output : source.outputs()) note_other(output.tensor);
    for (const Update& update : source.updates()) {
      note_other(update.target);
      note_other(update.value);
    }
  }

  // Finds tables indexed by positions, and products whose softmax routes tokens to experts.
  void find_sensitive() {
    const Graph& source = copy_.source();
    const auto mark = [&](TensorId weight) {
      if (const TensorId parameter = parameter_of(weight); parameter != kNoTensor)
        uses_[index(parameter)].is_sensitive = true;
    };
    for (const Node& node : source.nodes()) {
      if (node.op->weight.use == WeightUse::kRows) {
        const Tensor& ids = source.tensor(node.inputs[static_cast<size_t>(node.op->index.operand)]);
        if (ids.name == "positions") mark(node.inputs[static_cast<size_t>(node.op->weight.operand)]);
      } else if (const int scores = node.op->routing_scores; scores >= 0) {
        NodeId from = source.tensor(node.inputs[static_cast<size_t>(scores)]).producer;
        while (from != kNoNode && (source.node(from).op->is_gate || source.node(from).op->is_cast))
          from = source.tensor(source.node(from).inputs[0]).producer;
        if (from != kNoNode && source.node(from).op->weight.use == WeightUse::kProduct)
          mark(source.node(from).inputs[static_cast<size_t>(source.node(from).op->weight.operand)]);
      }
    }
  }

  // The model's stored type of the parameter; its own unless all readers accept that type.
  DType present_type(TensorId id) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    const auto named = storage_.types.find(tensor.name);
    const bool is_read = uses.wanted + uses.allowed > 0 && uses.others_of_cast == 0;
    const bool is_narrow = named != storage_.types.end() && is_narrow_type(named->second);
    return is_narrow && is_read && !is_trained(id) ? named->second : tensor.type.dtype;
  }

  // The type of a parameter by `matrices`, whatever the model's.
  DType matrix_type(TensorId id, DType present) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    const DType wanted = *storage_.matrices;
    const DType half = uses.cast_to            ? *uses.cast_to
                       : is_half_type(present) ? present
                       : is_half_type(wanted)  ? wanted
                                               : DType::kBF16;
    const bool is_matrix = uses.wanted > 0 && uses.others_of_cast == 0 && !uses.is_sensitive &&
                           !is_adapter_name(tensor.name) && tensor.type.shape.is_concrete();
    if (!is_matrix || wanted == DType::kBF16) return half;
    return find_fitting_type(wanted, tensor.type.shape.dims().back()).value_or(half);
  }

  // The type in which the parameter is stored; its own if it stays.
  DType storage_of(TensorId id) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    if (tensor.type.dtype != DType::kF32 || uses.others > 0 || uses.two_casts) return tensor.type.dtype;
    const DType present = present_type(id);
    if (!storage_.matrices || (uses.wanted == 0 && !uses.cast_to)) return present;
    const DType wanted = matrix_type(id, present);
    if (is_half_type(present) && is_half_type(wanted)) return wanted == uses.cast_to ? wanted : present;
    return is_narrower(wanted, present) ? wanted : present;
  }

  // Returns whether a graph's updates train it.
  bool is_trained(TensorId id) const {
    const Graph& source = copy_.source();
    if (!source.gradients().empty() && source.tensor(id).trainable) return true;
    return std::ranges::any_of(source.updates(), [&](const Update& update) { return update.target == id; });
  }

  Status add_parameter(TensorId id) {
    const Tensor& tensor = copy_.source().tensor(id);
    const DType dtype = storage_of(id);
    if (dtype == tensor.type.dtype) return copy_.copy_tensor(id);
    Graph& graph = copy_.graph();
    TSR_ASSIGN_OR_RETURN(const TensorId stored,
                         graph.add_tensor(tensor.name, {dtype, tensor.type.shape}, TensorKind::kParameter));
    if (!tensor.trainable) graph.set_trainable(stored, false);
    copy_.replace(id, stored);
    stored_[index(id)] = true;
    return {};
  }

  Status add_node(NodeId id) {
    const Node& node = copy_.source().node(id);
    if (node.phase != Phase::kForward && storage_.matrices)
      return Status(StatusCode::kFailedPrecondition,
                    "how weights are stored is settled for a graph that only runs: this one has gradients");
    const auto is_stored = [&](size_t input) {
      const TensorId parameter = parameter_of(node.inputs[input]);
      return parameter != kNoTensor && stored_[index(parameter)];
    };
    const auto is_direct = [&](size_t input) {
      return parameter_of(node.inputs[input]) == node.inputs[input];
    };
    if (node.op->is_cast && is_stored(0) && is_direct(0)) {
      // The stored weight replaces its cast.
      copy_.replace(node.outputs[0], copy_.mapped(node.inputs[0]));
      return {};
    }
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (read_of(node, i) != StoredRead::kRefused && is_stored(i)) return add_reader(id, i);
    return copy_.copy_node(id);
  }

  // Adds the node with its stored weight, by the op that reads it.
  Status add_reader(NodeId id, size_t weight) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    inputs[weight] = copy_.mapped(parameter_of(node.inputs[weight]));
    const DType stored = graph.type(inputs[weight]).dtype;
    if (stored == copy_.source().type(node.inputs[weight]).dtype) return copy_.copy_node(id);
    const auto stored_op = node.op->weight.stored_op;
    const OpDef& op = stored_op == nullptr ? *node.op : *find_op(stored_op(node.attrs));
    begin_node(node);
    TSR_ASSIGN_OR_RETURN(std::vector<TensorId> results, add_rounding(node, op, inputs, stored));
    // With an activation, the value before it is a result too.
    const std::string_view activation = attr_string_or(node.attrs, "activation", "none");
    if (activation != "none" && !has_attr(op, "activation")) {
      TSR_ASSIGN_OR_RETURN(const TensorId active, graph.add(activation, {results[0]}));
      results = {active, results[0]};
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const DType wanted = copy_.source().type(node.outputs[i]).dtype;
      if (graph.type(results[i]).dtype == wanted) continue;
      TSR_ASSIGN_OR_RETURN(results[i], graph.add("cast", {results[i]}, {{"dtype", to_text(wanted)}}));
    }
    end_node(id);
    return replace_results(node, results);
  }

  static bool has_attr(const OpDef& op, std::string_view name) {
    return std::ranges::find(op.attrs, name, &AttrSpec::name) != op.attrs.end();
  }

  // Adds `op` with the node's attributes. Activations are rounded as in the storage's settings, where the op has such a form.
  Result<std::vector<TensorId>> add_rounding(const Node& node, const OpDef& op, const std::vector<TensorId>& inputs,
                                             DType stored) {
    constexpr std::string_view kRounding = "activations";
    std::vector<Attr> attrs;
    for (const Attr& attr : node.attrs)  // TF32 applies to products of two f32 operands
      if (has_attr(op, attr.name) && attr.name != kRounding && attr.name != "allow_tf32") attrs.push_back(attr);
    const bool is_q8 = storage_.q8_activations && has_integer_codes(stored);
    const bool is_bf16 = storage_.bf16_activations && stored == DType::kBF16;
    if (has_attr(op, kRounding) && (is_q8 || is_bf16) && node.phase == Phase::kForward) {
      std::vector<Attr> rounding = attrs;
      rounding.push_back({std::string(kRounding), std::string(is_q8 ? "q8" : "bf16")});
      auto made = copy_.graph().add_node(op.name, inputs, std::move(rounding));
      if (made.ok()) return made;
    }
    return copy_.graph().add_node(op.name, inputs, std::move(attrs));
  }

  // Begins the nodes that replace `node`: its scope, phase and forward node.
  void begin_node(const Node& node) {
    copy_.graph().set_scope(node.scope);
    copy_.graph().set_phase(node.phase, node.forward == kNoNode ? kNoNode : copy_.mapped_node(node.forward));
  }
  // Ends them: the last one replaces it.
  void end_node(NodeId id) {
    copy_.graph().set_scope("");
    copy_.graph().set_phase(Phase::kForward);
    copy_.replace_node(id, NodeId{static_cast<uint32_t>(copy_.graph().nodes().size() - 1)});
  }

  Status replace_results(const Node& node, const std::vector<TensorId>& results) {
    for (size_t i = 0; i < node.outputs.size(); ++i)
      TSR_RETURN_IF_ERROR(copy_.substitute(node.outputs[i], results[i]));
    return {};
  }

  GraphCopy copy_;
  const WeightStorage& storage_;
  std::vector<Uses> uses_;    // by tensor of the source
  std::vector<bool> stored_;  // a parameter that is stored in another type than its own
};

}  // namespace

Result<Graph> with_stored_weights(const Graph& graph, const WeightStorage& storage) {
  if (!storage.matrices && storage.types.empty()) return graph;
  return Storing(graph, storage).run();
}

}  // namespace tessera
