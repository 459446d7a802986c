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
  int products = 0;  // matmuls of the weight [N, K]
  int turned = 0;    // matmuls of it the other way round, as backward passes have them
  int tables = 0;
  int experts = 0;  // expert_matmuls, either way round
  int others = 0;  // of the parameter itself
  int others_of_cast = 0;
  std::optional<DType> cast_to;
  bool two_casts = false;
  bool is_sensitive = false;  // a table of positions or a router: small, and errors in it cost much
};

// Whether rows of `a` take fewer bytes than rows of `b`.
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
  // The parameter that a tensor is, or is a cast to 16 bits of; kNoTensor for others.
  TensorId parameter_of(TensorId id) const {
    const Graph& source = copy_.source();
    const Tensor* tensor = &source.tensor(id);
    if (tensor->producer != kNoNode && source.node(tensor->producer).op->name == "cast" &&
        is_half_type(tensor->type.dtype)) {
      id = source.node(tensor->producer).inputs[0];
      tensor = &source.tensor(id);
    }
    return tensor->kind == TensorKind::kParameter && tensor->type.dtype == DType::kF32 ? id : kNoTensor;
  }

  // Without bias and activation, as quantized_matmul_grad is.
  static bool is_plain(const Node& node) {
    return node.inputs.size() == 2 && attr_string(node.attrs, "activation") == "none";
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
        const bool is_weight = node.op->name == "matmul" && i == 1;
        if (is_weight && attr_i64(node.attrs, "trans_w") == 1) {
          ++uses.products;
        } else if (is_weight && is_plain(node)) {
          ++uses.turned;
        } else if (node.op->name == "head_matmul" && i == 1) {
          ++(attr_i64(node.attrs, "trans_w") == 1 ? uses.products : uses.turned);
        } else if (node.op->name == "expert_matmul" && i == 1) {
          ++uses.experts;
        } else if (node.op->name == "embedding" && i == 0) {
          ++uses.tables;
        } else if (node.op->name == "adapter_row_squares" && i == 0 && attr_i64(node.attrs, "trans_w") == 1) {
          // It takes the weight in any type.
        } else if (parameter == node.inputs[i] && node.op->name == "cast" &&
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

  // Tables that are looked up by positions, and products whose softmax routes tokens to experts.
  void find_sensitive() {
    const Graph& source = copy_.source();
    const auto mark = [&](TensorId weight) {
      if (const TensorId parameter = parameter_of(weight); parameter != kNoTensor)
        uses_[index(parameter)].is_sensitive = true;
    };
    for (const Node& node : source.nodes()) {
      if (node.op->name == "embedding") {
        const Tensor& ids = source.tensor(node.inputs[1]);
        if (ids.name == "positions") mark(node.inputs[0]);
      } else if (node.op->name == "moe_route") {
        NodeId from = source.tensor(node.inputs[0]).producer;
        while (from != kNoNode &&
               (source.node(from).op->name == "softmax" || source.node(from).op->name == "cast"))
          from = source.tensor(source.node(from).inputs[0]).producer;
        if (from != kNoNode && source.node(from).op->name == "matmul") mark(source.node(from).inputs[1]);
      }
    }
  }

  // The type that the model has the parameter in; its own where not all that reads it takes that type.
  DType present_type(TensorId id) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    const auto named = storage_.types.find(tensor.name);
    const bool is_read =
        uses.products + uses.turned + uses.tables + uses.experts > 0 && uses.others_of_cast == 0;
    const bool is_narrow = named != storage_.types.end() && is_narrow_type(named->second);
    return is_narrow && is_read && !is_trained(id) ? named->second : tensor.type.dtype;
  }

  // The type of a parameter by `matrices`, whatever the model has.
  DType matrix_type(TensorId id, DType present) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    const DType wanted = *storage_.matrices;
    const DType half = uses.cast_to            ? *uses.cast_to
                       : is_half_type(present) ? present
                       : is_half_type(wanted)  ? wanted
                                               : DType::kBF16;
    const bool is_matrix = uses.products + uses.tables + uses.experts > 0 && uses.others_of_cast == 0 &&
                           !uses.is_sensitive && !is_adapter_name(tensor.name) &&
                           tensor.type.shape.is_concrete();
    if (!is_matrix || wanted == DType::kBF16) return half;
    return find_fitting_type(wanted, tensor.type.shape.dims().back()).value_or(half);
  }

  // The type in which the parameter is stored; its own where it stays.
  DType storage_of(TensorId id) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    if (tensor.type.dtype != DType::kF32 || uses.others > 0 || uses.two_casts) return tensor.type.dtype;
    const DType present = present_type(id);
    if (!storage_.matrices || (uses.products + uses.tables + uses.experts == 0 && !uses.cast_to))
      return present;
    const DType wanted = matrix_type(id, present);
    if (is_half_type(present) && is_half_type(wanted)) return wanted == uses.cast_to ? wanted : present;
    return is_narrower(wanted, present) ? wanted : present;
  }

  // In a graph with updates.
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
    if (node.op->name == "cast" && is_stored(0) && is_direct(0)) {
      // The stored weight replaces its cast.
      copy_.replace(node.outputs[0], copy_.mapped(node.inputs[0]));
      return {};
    }
    if (node.op->name == "matmul" && is_stored(1))
      return attr_i64(node.attrs, "trans_w") == 1 ? add_product(id) : add_turned_product(id);
    if (node.op->name == "head_matmul" && is_stored(1)) return add_head_product(id);
    if (node.op->name == "expert_matmul" && is_stored(1)) return add_expert_product(id);
    if (node.op->name == "embedding" && is_stored(0)) return add_look_up(id);
    return copy_.copy_node(id);
  }

  // With an activation, the value before it is a result too.
  Status add_product(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    const TensorId x = copy_.mapped(node.inputs[0]), w = copy_.mapped(parameter_of(node.inputs[1]));
    if (graph.type(x).dtype == graph.type(w).dtype) return copy_.copy_node(id);
    std::vector<TensorId> inputs = {x, w};
    if (node.inputs.size() == 3) inputs.push_back(copy_.mapped(node.inputs[2]));
    begin_node(node);
    std::vector<Attr> attrs;
    if (storage_.q8_activations && has_integer_codes(graph.type(w).dtype))
      attrs = {{"activations", std::string("q8")}};
    if (storage_.bf16_activations && graph.type(w).dtype == DType::kBF16)
      attrs = {{"activations", std::string("bf16")}};
    TSR_ASSIGN_OR_RETURN(std::vector<TensorId> results,
                         graph.add_node("quantized_matmul", inputs, std::move(attrs)));
    if (const std::string& activation = attr_string(node.attrs, "activation"); activation != "none") {
      TSR_ASSIGN_OR_RETURN(const TensorId active, graph.add(activation, {results[0]}));
      results = {active, results[0]};
    }
    end_node(id);
    return replace_results(node, results);
  }

  Status add_turned_product(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    const TensorId x = copy_.mapped(node.inputs[0]), w = copy_.mapped(parameter_of(node.inputs[1]));
    if (graph.type(x).dtype == graph.type(w).dtype) return copy_.copy_node(id);
    begin_node(node);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                         graph.add_node("quantized_matmul_grad", {{x, w}}));
    end_node(id);
    return replace_results(node, results);
  }

  Status add_head_product(NodeId id) {
    const Node& node = copy_.source().node(id);
    const TensorId inputs[] = {copy_.mapped(node.inputs[0]), copy_.mapped(parameter_of(node.inputs[1]))};
    begin_node(node);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                         copy_.graph().add_node("head_matmul", inputs, node.attrs));
    end_node(id);
    return replace_results(node, results);
  }

  Status add_expert_product(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    inputs[1] = copy_.mapped(parameter_of(node.inputs[1]));
    const DType w = graph.type(inputs[1]).dtype;
    if (graph.type(inputs[0]).dtype == w) return copy_.copy_node(id);
    std::vector<Attr> attrs = {{"trans_w", attr_i64(node.attrs, "trans_w")}};
    if (storage_.q8_activations && has_integer_codes(w) && attr_i64(node.attrs, "trans_w") == 1 &&
        node.phase == Phase::kForward)
      attrs.push_back({"activations", std::string("q8")});
    begin_node(node);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                         graph.add_node("expert_matmul", inputs, std::move(attrs)));
    end_node(id);
    return replace_results(node, results);
  }

  // Nodes that stand for `node`: its scope, its phase, its forward node.
  void begin_node(const Node& node) {
    copy_.graph().set_scope(node.scope);
    copy_.graph().set_phase(node.phase, node.forward == kNoNode ? kNoNode : copy_.mapped_node(node.forward));
  }
  // The last of them stands for it.
  void end_node(NodeId id) {
    copy_.graph().set_scope("");
    copy_.graph().set_phase(Phase::kForward);
    copy_.replace_node(id, NodeId{static_cast<uint32_t>(copy_.graph().nodes().size() - 1)});
  }

  Status add_look_up(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    begin_node(node);
    TSR_ASSIGN_OR_RETURN(
        TensorId rows, graph.add("embedding", {copy_.mapped(node.inputs[0]), copy_.mapped(node.inputs[1])}));
    const DType wanted = copy_.source().type(node.outputs[0]).dtype;
    if (graph.type(rows).dtype != wanted) {
      TSR_ASSIGN_OR_RETURN(rows, graph.add("cast", {rows}, {{"dtype", to_text(wanted)}}));
    }
    end_node(id);
    return replace_results(node, {rows});
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
