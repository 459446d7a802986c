#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/half.h"
#include "graph/base/hash.h"
#include "graph/base/text.h"
#include "graph/graph_text.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/precision.h"

namespace tessera {

namespace {

bool is_cast_to_bf16(const Graph& graph, const Node& node) {
  return node.op->is_cast && graph.type(node.outputs[0]).dtype == DType::kBF16;
}

class Narrowing {
 public:
  explicit Narrowing(const Graph& source)
      : copy_(source),
        narrow_(source.tensors().size(), false),
        casts_(source.tensors().size(), kNoTensor),
        removed_(source.nodes().size(), false),
        updates_(source.nodes().size(), false) {
    for (size_t t = 0; t < narrow_.size(); ++t) {
      const Tensor& tensor = source.tensors()[t];
      narrow_[t] =
          tensor.kind == TensorKind::kParameter && tensor.trainable && tensor.type.dtype == DType::kF32;
    }
    for (const Update& update : source.updates())
      if (narrow_[index(update.target)] && source.tensor(update.value).producer != kNoNode)
        updates_[index(source.tensor(update.value).producer)] = true;
  }

  Result<Graph> run() {
    const Graph& source = copy_.source();
    for (size_t t = 0; t < source.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      const Tensor& tensor = source.tensor(id);
      if (narrow_[t]) {
        TSR_ASSIGN_OR_RETURN(
            const TensorId now,
            copy_.graph().add_tensor(tensor.name, {DType::kBF16, tensor.type.shape}, TensorKind::kParameter));
        copy_.replace(id, now);
      } else if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
      } else if (tensor.output_index == 0) {
        TSR_RETURN_IF_ERROR(add_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  Status add_node(NodeId id) {
    const Node& node = copy_.source().node(id);
    if (updates_[index(id)]) return add_update(id);
    if (is_cast_to_bf16(copy_.source(), node) && narrow_[index(node.inputs[0])]) {
      removed_[index(id)] = true;
      copy_.replace(node.outputs[0], copy_.mapped(node.inputs[0]));
      return {};
    }
    std::vector<std::pair<TensorId, TensorId>> own;  // parameters that the node reads as casts
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId input = node.inputs[i];
      if (!narrow_[index(input)] ||
          std::ranges::any_of(own, [&](const auto& one) { return one.first == input; }))
        continue;
      const bool is_read =
          std::ranges::find(node.op->shape_only, static_cast<int>(i)) == node.op->shape_only.end();
      TSR_ASSIGN_OR_RETURN(const TensorId cast, cast_for(node, input, is_read));
      own.emplace_back(input, copy_.mapped(input));
      copy_.replace(input, cast);
    }
    TSR_RETURN_IF_ERROR(copy_.copy_node(id));
    for (const auto& [parameter, now] : own) copy_.replace(parameter, now);
    // A node whose forward node was a removed cast now names the cast's reader.
    for (const TensorId input : node.inputs)
      if (const NodeId made = copy_.source().tensor(input).producer;
          made != kNoNode && removed_[index(made)] && copy_.mapped_node(made) == kNoNode)
        copy_.replace_node(made, copy_.mapped_node(id));
    return {};
  }

  // A cast for each reader, so that it lives no longer than needed; a reader of the shape alone shares any.
  Result<TensorId> cast_for(const Node& reader, TensorId parameter, bool is_read) {
    TensorId& any = casts_[index(parameter)];
    if (!is_read && any != kNoTensor) return any;
    Graph& graph = copy_.graph();
    graph.set_scope(reader.scope);
    graph.set_phase(reader.phase, reader.forward == kNoNode ? kNoNode : copy_.mapped_node(reader.forward));
    TSR_ASSIGN_OR_RETURN(const TensorId made, graph.add("cast", {copy_.mapped(parameter)},
                                                        {{"dtype", std::string(to_text(DType::kF32))}}));
    graph.set_scope("");
    graph.set_phase(Phase::kForward);
    if (any == kNoTensor) any = made;
    return made;
  }

  Status add_update(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    const std::string& parameter = copy_.source().tensor(node.inputs[0]).name;
    const std::string_view op = node.op->stochastic_op;
    if (!narrow_[index(node.inputs[0])] || op.empty())
      return Status(StatusCode::kUnsupported,
                    format("'{}' updates parameter '{}', which is to be stored in bf16, and has no form that "
                           "rounds by random bits",
                           node.op->name, parameter));
    TSR_ASSIGN_OR_RETURN(const TensorId seed, find_seed());
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    inputs.push_back(seed);
    std::vector<Attr> attrs = node.attrs;
    Hash salt;
    salt.add(std::string_view(parameter));
    attrs.push_back({"salt", static_cast<int64_t>(salt.value())});
    graph.set_scope(node.scope);
    graph.set_phase(node.phase);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, graph.add_node(op, inputs, std::move(attrs)));
    graph.set_scope("");
    graph.set_phase(Phase::kForward);
    for (size_t i = 0; i < outputs.size(); ++i) {
      copy_.replace(node.outputs[i], outputs[i]);
      TSR_RETURN_IF_ERROR(graph.rename(outputs[i], copy_.source().tensor(node.outputs[i]).name));
    }
    return {};
  }

  Result<TensorId> find_seed() {
    Graph& graph = copy_.graph();
    if (seed_ != kNoTensor) return seed_;
    const TensorType wanted{DType::kI64, {}};
    if (const auto found = graph.find_tensor("seed"); found) {
      const Tensor& tensor = graph.tensor(*found);
      if (tensor.kind != TensorKind::kInput || tensor.type != wanted)
        return Status(
            StatusCode::kInvalidArgument,
            format("bf16 parameters are rounded with random bits from an input 'seed' {}; the graph "
                   "has a tensor of that name that is a {}",
                   to_text(wanted), type_text(tensor.type, graph)));
      seed_ = *found;
      return seed_;
    }
    TSR_ASSIGN_OR_RETURN(seed_, graph.add_tensor("seed", wanted, TensorKind::kInput));
    return seed_;
  }

  GraphCopy copy_;
  std::vector<bool> narrow_;     // by tensor
  std::vector<TensorId> casts_;  // by parameter: one of its casts
  std::vector<bool> removed_;    // by node
  std::vector<bool> updates_;    // by node: computes the new value of such a parameter
  TensorId seed_ = kNoTensor;
};

}  // namespace

Result<Graph> with_bf16_parameters(const Graph& graph) { return Narrowing(graph).run(); }

HostTensor widened_to_f32(const HostTensor& bf16) {
  std::vector<float> values;
  for (const uint16_t bits : bf16.as<uint16_t>()) values.push_back(f32_from_bf16(bits));
  return HostTensor::copy_of<float>({DType::kF32, bf16.type.shape}, values);
}

}  // namespace tessera
