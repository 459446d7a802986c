#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/analysis/block_scope.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/precision.h"

namespace tessera {

namespace {

constexpr int64_t kUnit = 16;  // bytes of one load of tensor cores

// Returns the parameter that `tensor` is, directly or by a cast; kNoTensor for none.
TensorId parameter_of(const Graph& graph, TensorId tensor) {
  const auto is_parameter = [&](TensorId id) { return graph.tensor(id).kind == TensorKind::kParameter; };
  if (is_parameter(tensor)) return tensor;
  const NodeId producer = graph.tensor(tensor).producer;
  if (producer == kNoNode || !graph.node(producer).op->is_cast) return kNoTensor;
  const TensorId source = graph.node(producer).inputs[0];
  return is_parameter(source) ? source : kNoTensor;
}

// Forward matmuls to convert, by node.
std::vector<bool> taken_products(const Graph& graph) {
  std::vector<bool> taken(graph.nodes().size(), false);
  for (size_t n = 0; n < taken.size(); ++n) {
    const Node& node = graph.nodes()[n];
    const bool has_codes = node.op->weight.use == WeightUse::kProduct && !node.op->scaled_op.empty();
    if (!has_codes || node.phase != Phase::kForward || block_scope(node.scope).empty()) continue;
    const TensorId parameter = parameter_of(graph, node.inputs[1]);
    if (parameter == kNoTensor || is_adapter_name(graph.tensor(parameter).name)) continue;
    taken[n] = std::ranges::all_of(graph.type(parameter).shape.dims(),
                                   [](int64_t extent) { return extent > 0 && extent % kUnit == 0; });
  }
  for (const Node& node : graph.nodes()) {
    if (!node.op->is_gate) continue;
    const NodeId producer = graph.tensor(node.inputs[0]).producer;
    if (producer != kNoNode) taken[index(producer)] = false;
  }
  return taken;
}

class Fp8Copy {
 public:
  explicit Fp8Copy(const Graph& source) : copy_(source), taken_(taken_products(source)) {}

  Result<Graph> run() {
    if (std::ranges::find(taken_, true) == taken_.end())
      return Status(
          StatusCode::kInvalidArgument,
          format("precision fp8: no product in a block (a scope with a number, as 'block.3.ffn') has "
                 "a weight whose extents are multiples of {}; use another precision",
                 kUnit));
    const Graph& source = copy_.source();
    // Tensors follow their operands.
    for (size_t t = 0; t < source.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
      } else if (tensor.output_index == 0) {
        TSR_RETURN_IF_ERROR(copy_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  struct Quantized {
    TensorId codes, scale;
  };

  Status copy_node(NodeId id) {
    const Node& node = copy_.source().node(id);
    if (taken_[index(id)]) return forward_product(id);
    if (node.forward != kNoNode && taken_[index(node.forward)]) {
      const Node& forward = copy_.source().node(node.forward);
      const bool has_codes = !node.op->scaled_op.empty(), is_product = node.op->weight.operand >= 0;
      if (has_codes && is_product && node.inputs[1] == forward.inputs[1]) return input_gradient(id);
      if (has_codes && !is_product && node.inputs[0] == forward.inputs[0]) return weight_gradient(id);
    }
    // The cast to f32 after the gradient of a weight, of mixed precision.
    if (node.op->is_cast && wide_gradients_.contains(node.inputs[0])) {
      const TensorId now = copy_.mapped(node.inputs[0]);
      if (to_text(graph().type(now).dtype) == attr_string(node.attrs, "dtype"))
        return copy_.substitute(node.outputs[0], now);
    }
    return copy_.copy_node(id);
  }

  // y = x w + bias. An activation of the matmul becomes a separate node.
  Status forward_product(NodeId id) {
    const Node& node = copy_.source().node(id);
    set_scope_and_phase(node, Phase::kForward, kNoNode);
    TSR_ASSIGN_OR_RETURN(const Quantized x, quantized_once(node.inputs[0], "e4m3"));
    TSR_ASSIGN_OR_RETURN(const Quantized w,
                         quantized(copy_.mapped(parameter_of(copy_.source(), node.inputs[1])), "e4m3"));
    weights_.insert_or_assign(id, w);
    std::vector<TensorId> inputs = {x.codes, w.codes, x.scale, w.scale};
    if (node.inputs.size() == 3) inputs.push_back(copy_.mapped(node.inputs[2]));
    TSR_ASSIGN_OR_RETURN(const TensorId y, product(id, inputs));
    const std::string& activation = attr_string(node.attrs, "activation");
    if (activation != "none") {
      TSR_ASSIGN_OR_RETURN(const TensorId active, graph().add(activation, {y}));
      TSR_RETURN_IF_ERROR(copy_.substitute(node.outputs[0], active));
    }
    leave_scope_and_phase();
    return copy_.substitute(node.outputs.back(), y);
  }

  // dx = dy w
  Status input_gradient(NodeId id) {
    const Node& node = copy_.source().node(id);
    TSR_ASSIGN_OR_RETURN(const Quantized dy, quantized_gradient(node, node.inputs[0]));
    const Quantized& w = weights_.at(node.forward);
    set_scope_and_phase(node, node.phase, copy_.mapped_node(node.forward));
    TSR_ASSIGN_OR_RETURN(const TensorId dx, product(id, {dy.codes, w.codes, dy.scale, w.scale}));
    leave_scope_and_phase();
    return copy_.substitute(node.outputs[0], dx);
  }

  // dw = x^T dy, in f32 (f64). Mixed precision would round it and cast it back;
  // here it is the parameter's gradient itself, which only the update waits for.
  Status weight_gradient(NodeId id) {
    const Node& node = copy_.source().node(id);
    const Quantized& x = once_.at({node.inputs[0], "e4m3"});
    TSR_ASSIGN_OR_RETURN(const Quantized dy, quantized_gradient(node, node.inputs[1]));
    const bool casts_read_it = only_casts_read(node.outputs[0]);
    set_scope_and_phase(node, casts_read_it ? Phase::kBackwardWeight : node.phase,
                        copy_.mapped_node(node.forward));
    TSR_ASSIGN_OR_RETURN(TensorId dw, graph().add(node.op->scaled_op, {x.codes, dy.codes, x.scale, dy.scale},
                                                  {{"trans_w", attr_i64(node.attrs, "trans_w")}}));
    copy_.replace_node(id, last_node());
    const DType was = copy_.source().type(node.outputs[0]).dtype;
    if (casts_read_it) {
      wide_gradients_.insert(node.outputs[0]);
    } else if (was != graph().type(dw).dtype) {
      TSR_ASSIGN_OR_RETURN(dw, graph().add("cast", {dw}, {{"dtype", to_text(was)}}));
    }
    leave_scope_and_phase();
    return copy_.substitute(node.outputs[0], dw);
  }

  bool only_casts_read(TensorId id) const {
    const Graph& source = copy_.source();
    const auto other = [&](const Node& node) {
      return !node.op->is_cast && std::ranges::find(node.inputs, id) != node.inputs.end();
    };
    const auto is_gradient = [&](const Gradient& gradient) { return gradient.gradient == id; };
    return std::ranges::none_of(source.nodes(), other) &&
           std::ranges::none_of(source.gradients(), is_gradient);
  }

  Result<TensorId> product(NodeId id, const std::vector<TensorId>& inputs) {
    const Node& node = copy_.source().node(id);
    const DType dtype = copy_.source().type(node.outputs[0]).dtype;
    const bool is_narrow = dtype != graph().type(inputs[2]).dtype;
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> made,
                         graph().add_node(node.op->scaled_op, inputs,
                                          {{"trans_w", attr_i64(node.attrs, "trans_w")},
                                           {"dtype", is_narrow ? to_text(dtype) : std::string()}}));
    copy_.replace_node(id, last_node());
    return made[0];
  }

  // The codes of a gradient, which both matmuls read. They belong to the phase of the first that may run.
  Result<Quantized> quantized_gradient(const Node& reader, TensorId dy) {
    set_scope_and_phase(reader, Phase::kBackwardInput, copy_.mapped_node(reader.forward));
    Result<Quantized> made = quantized_once(dy, "e5m2");
    leave_scope_and_phase();
    return made;
  }

  // Quantizes a tensor of the source once, for all its readers.
  Result<Quantized> quantized_once(TensorId old, const std::string& dtype) {
    const auto known = once_.find({old, dtype});
    if (known != once_.end()) return known->second;
    TSR_ASSIGN_OR_RETURN(const Quantized made, quantized(copy_.mapped(old), dtype));
    once_.emplace(std::pair(old, dtype), made);
    return made;
  }

  Result<Quantized> quantized(TensorId now, const std::string& dtype) {
    TSR_ASSIGN_OR_RETURN(const TensorId scale, graph().add("quantize_scale", {now}, {{"dtype", dtype}}));
    TSR_ASSIGN_OR_RETURN(const TensorId codes, graph().add("quantize", {now, scale}, {{"dtype", dtype}}));
    return Quantized{codes, scale};
  }

  Graph& graph() { return copy_.graph(); }
  NodeId last_node() { return NodeId{static_cast<uint32_t>(graph().nodes().size() - 1)}; }
  void set_scope_and_phase(const Node& node, Phase phase, NodeId forward) {
    graph().set_scope(node.scope);
    graph().set_phase(phase, forward);
  }
  void leave_scope_and_phase() {
    graph().set_scope("");
    graph().set_phase(Phase::kForward);
  }
  GraphCopy copy_;
  const std::vector<bool> taken_;        // by node
  std::map<NodeId, Quantized> weights_;  // by forward node
  std::map<std::pair<TensorId, std::string>, Quantized> once_;
  std::set<TensorId> wide_gradients_;  // gradients of weights, by the source's tensors that only casts read
};

}  // namespace

Result<Graph> with_fp8_matmuls(const Graph& graph) { return Fp8Copy(graph).run(); }

}  // namespace tessera
