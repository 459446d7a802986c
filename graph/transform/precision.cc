#include "graph/transform/precision.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

// Copies nodes with operands in the element type that the op accepts.
class MixedCopy {
 public:
  MixedCopy(const Graph& source, DType compute) : copy_(source), compute_(compute) {}

  Result<Graph> run() {
    const Graph& source = copy_.source();
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
      } else if (tensor.output_index == 0) {
        if (source.node(tensor.producer).phase != Phase::kForward)
          return Status(StatusCode::kFailedPrecondition,
                        "the element type of a graph is chosen before it is differentiated");
        TSR_RETURN_IF_ERROR(copy_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  // The casts of operands, in the order of trials. Activations
  // in f32 are statistics and losses: they are never narrowed.
  struct Way {
    bool narrow_parameters, narrow_sources, widen;
  };
  static constexpr Way kWays[] = {
      {true, false, false}, {true, true, false}, {false, false, false}, {false, false, true}};

  DType type_of(TensorId now) { return copy_.graph().tensor(now).type.dtype; }
  DType wanted(const Way& way, TensorId old, TensorId now) {
    const DType is = type_of(now);
    const TensorKind kind = copy_.source().tensor(old).kind;
    const bool narrows = kind == TensorKind::kParameter    ? way.narrow_parameters
                         : kind == TensorKind::kActivation ? false
                                                           : way.narrow_sources;
    if (is == DType::kF32 && narrows) return compute_;
    return is == compute_ && way.widen ? DType::kF32 : is;
  }

  // Casts a parameter for each of its readers, which may be in different stages of
  // a pipeline. So its gradient is a sum of casts to f32, not the cast of a sum.
  Result<TensorId> cast(TensorId now, DType dtype) {
    if (type_of(now) == dtype) return now;
    const bool shared = copy_.graph().tensor(now).kind != TensorKind::kParameter;
    if (const auto found = casts_.find(std::pair(index(now), dtype)); shared && found != casts_.end())
      return found->second;
    TSR_ASSIGN_OR_RETURN(
        const std::vector<TensorId> made,
        copy_.graph().add_node("cast", std::vector{now}, {{"dtype", std::string(to_text(dtype))}}));
    casts_.emplace(std::pair(index(now), dtype), made[0]);
    return made[0];
  }

  Status copy_node(NodeId id) {
    const Node& node = copy_.source().node(id);
    // A cast has its result type as an attribute.
    const bool is_cast = node.op->is_cast;
    Status refused;
    for (const Way& way : kWays) {
      std::vector<TensorType> types;
      for (const TensorId old : node.inputs) {
        types.push_back(copy_.graph().tensor(copy_.mapped(old)).type);
        if (!is_cast) types.back().dtype = wanted(way, old, copy_.mapped(old));
      }
      if (const auto inferred = node.op->infer(types, node.attrs); !inferred.ok()) {
        if (refused.ok()) refused = inferred.status();
        continue;
      }
      copy_.graph().set_scope(node.scope);
      std::vector<TensorId> inputs;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        TSR_ASSIGN_OR_RETURN(const TensorId input, cast(copy_.mapped(node.inputs[i]), types[i].dtype));
        inputs.push_back(input);
      }
      TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                           copy_.graph().add_node(node.op->name, inputs, node.attrs));
      copy_.graph().set_scope("");
      for (size_t i = 0; i < outputs.size(); ++i)
        TSR_RETURN_IF_ERROR(copy_.substitute(node.outputs[i], outputs[i]));
      return {};
    }
    return refused.with_context(format("'{}' in {}", node.op->name, to_text(compute_)));
  }

  GraphCopy copy_;
  const DType compute_;
  std::map<std::pair<size_t, DType>, TensorId> casts_;
};

}  // namespace

Result<Graph> with_mixed_precision(const Graph& forward, DType compute) {
  if (compute != DType::kBF16 && compute != DType::kF16)
    return Status(StatusCode::kUnsupported,
                  format("mixed precision with {}: wanted bf16 or f16", to_text(compute)));
  return MixedCopy(forward, compute).run();
}

Result<Graph> with_tf32_matmuls(const Graph& graph) {
  GraphCopy copy(graph);
  bool found = false;
  // Tensors follow their operands.
  for (size_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = graph.node(tensor.producer);
    std::vector<Attr> attrs = node.attrs;
    const auto allows = std::ranges::find(attrs, "allow_tf32", &Attr::name);
    const auto operands = std::span(node.inputs).first(std::min<size_t>(2, node.inputs.size()));
    if (allows != attrs.end() && std::ranges::all_of(operands, [&](TensorId input) {
          return graph.type(input).dtype == DType::kF32;
        })) {
      allows->value = int64_t{1};
      found = true;
    }
    TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer, std::move(attrs)));
  }
  if (!found)
    return Status(StatusCode::kInvalidArgument,
                  "precision tf32: the graph has no matrix product of f32 operands; use another precision");
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
