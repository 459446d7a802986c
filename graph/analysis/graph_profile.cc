#include "graph/analysis/graph_profile.h"

#include <algorithm>

#include "graph/base/text.h"
#include "graph/graph_text.h"

namespace tessera {

namespace {

bool only_shape_of(const OpDef& op, size_t input) {
  return std::ranges::find(op.shape_only, static_cast<int>(input)) != op.shape_only.end();
}

// Storage of values, without an allocator: views share the value
// that they view, and a value is released after its last reader.
class Storage {
 public:
  explicit Storage(const Graph& graph) : graph_(graph), base_(graph.tensors().size()) {
    for (size_t i = 0; i < base_.size(); ++i) {
      base_[i] = i;
      const NodeId producer = graph.tensors()[i].producer;
      if (producer != kNoNode && graph.node(producer).op->is_view)
        base_[i] = base_[index(graph.node(producer).inputs[0])];
    }
    last_reader_.resize(base_.size(), -1);
    is_saved_.resize(base_.size(), false);
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (only_shape_of(*node.op, i) || node.op->is_view) continue;
        const size_t base = base_[index(node.inputs[i])];
        last_reader_[base] = std::max(last_reader_[base], static_cast<int64_t>(n));
        const bool is_backward = node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight;
        if (is_backward && is_activation(base) &&
            graph.node(graph.tensors()[base].producer).phase == Phase::kForward)
          is_saved_[base] = true;
      }
    }
  }

  // Returns whether it is an activation's own value; other values outlive the run or are fed.
  bool is_activation(size_t tensor) const { return graph_.tensors()[tensor].producer != kNoNode; }
  bool is_saved(TensorId tensor) const { return is_saved_[base_[index(tensor)]]; }
  bool is_view(TensorId tensor) const { return base_[index(tensor)] != index(tensor); }
  int64_t last_reader(TensorId tensor) const { return last_reader_[base_[index(tensor)]]; }
  size_t base(TensorId tensor) const { return base_[index(tensor)]; }

 private:
  const Graph& graph_;
  std::vector<size_t> base_;          // by tensor: the tensor that owns the bytes
  std::vector<int64_t> last_reader_;  // by base
  std::vector<bool> is_saved_;        // by base
};

Result<OpCost> cost_of(const Graph& graph, const Node& node) {
  if (node.op->is_view || node.op->cost == nullptr) return OpCost{};
  std::vector<TensorType> inputs, outputs;
  for (const TensorId id : node.inputs) inputs.push_back(graph.type(id));
  for (const TensorId id : node.outputs) outputs.push_back(graph.type(id));
  ShardingRule rule = node.op->sharding({node.attrs, inputs, outputs, {}});
  TSR_RETURN_IF_ERROR(bind_extents(rule, inputs, outputs));
  std::vector<FactorView> factors;
  for (const Factor& factor : rule.factors)
    factors.push_back({factor.name, factor.extent, 1, 1, {0, 0}, {factor.extent, 0}});
  return node.op->cost({node.attrs, inputs, outputs, factors});
}

int64_t bytes_of(const Graph& graph, TensorId tensor) {
  const TensorType& type = graph.type(tensor);
  return dtype_bytes(type.dtype, type.shape.elements());
}

}  // namespace

void WorkTotals::add(const WorkTotals& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  saved_bytes += other.saved_bytes;
  transient_bytes = std::max(transient_bytes, other.transient_bytes);
  nodes += other.nodes;
}

WorkPhase work_phase(Phase phase) {
  if (phase == Phase::kForward) return WorkPhase::kForward;
  return phase == Phase::kUpdate ? WorkPhase::kUpdate : WorkPhase::kBackward;
}

WorkTotals GraphProfile::total() const {
  WorkTotals all;
  for (const WorkTotals& phase : phases) all.add(phase);
  return all;
}

std::string block_of(const Node& node) {
  const std::vector<std::string> words = split(node.scope, '.');
  if (words.size() >= 2 && parse_i64(words[1])) return words[0] + "." + words[1];
  return words.empty() ? "" : words[0];
}

Result<GraphProfile> profile_graph(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors())
    if (!tensor.type.shape.is_concrete())
      return Status(StatusCode::kInvalidArgument,
                    format("tensor '{}' has the type {}: give every symbol a value", tensor.name,
                           type_text(tensor.type, graph)));
  const Storage storage(graph);
  GraphProfile profile;
  std::vector<int64_t> alive(graph.tensors().size(), 0);  // live bytes of transient values, by node
  std::vector<std::vector<size_t>> dying(graph.nodes().size());
  int64_t transient = 0;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    TSR_ASSIGN_OR_RETURN(const OpCost cost, cost_of(graph, node));
    WorkTotals& work = profile.nodes.emplace_back();
    work = {cost.flops, cost.bytes_read, cost.bytes_written, 0, 0, 1};
    for (const TensorId output : node.outputs) {
      if (storage.is_view(output)) continue;
      const int64_t bytes = bytes_of(graph, output);
      if (storage.is_saved(output)) {
        work.saved_bytes += bytes;
        continue;
      }
      alive[index(output)] = bytes;
      transient += bytes;
      const int64_t last = storage.last_reader(output);
      dying[last < 0 ? n : static_cast<size_t>(last)].push_back(index(output));
    }
    work.transient_bytes = transient;
    for (const size_t tensor : dying[n]) transient -= alive[tensor];
    profile.phases[static_cast<size_t>(work_phase(node.phase))].add(work);
  }
  for (const Tensor& tensor : graph.tensors()) {
    const int64_t bytes = dtype_bytes(tensor.type.dtype, tensor.type.shape.elements());
    if (tensor.kind == TensorKind::kParameter) profile.parameter_bytes += bytes;
    if (tensor.kind == TensorKind::kState) profile.state_bytes += bytes;
  }
  return profile;
}

}  // namespace tessera
