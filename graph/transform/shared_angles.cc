#include "graph/transform/shared_angles.h"

#include <map>
#include <tuple>
#include <vector>

#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

// The operands of angles: positions, theta, head size.
using AngleKey = std::tuple<TensorId, double, int64_t>;

AngleKey key_of(const Graph& graph, const Node& rope) {
  return {rope.inputs[1], attr_f64(rope.attrs, "theta"), graph.type(rope.inputs[0]).shape[3]};
}

// By name: this rewrite splits the one op whose two halves are rope_angles and rope_rotate.
bool is_rotation(const Node& node) { return node.op->name == "rope"; }

// Replaces a rope by a rotation, whose angles are added before their first reader.
Status add_rotation(GraphCopy& copy, NodeId id, std::map<AngleKey, TensorId>& made) {
  const Graph& source = copy.source();
  Graph& graph = copy.graph();
  const Node& rope = source.node(id);
  const AngleKey key = key_of(source, rope);
  if (!made.contains(key)) {
    const NodeId producer = source.tensor(rope.inputs[1]).producer;
    graph.set_scope(producer == kNoNode ? rope.scope : source.node(producer).scope);
    TSR_ASSIGN_OR_RETURN(made[key],
                         graph.add("rope_angles", {copy.mapped(rope.inputs[1])},
                                   {{"theta", std::get<1>(key)}, {"head_size", std::get<2>(key)}}));
  }
  graph.set_scope(rope.scope);
  TSR_ASSIGN_OR_RETURN(
      const TensorId rotated,
      graph.add("rope_rotate", {copy.mapped(rope.inputs[0]), made[key]},
                {{"style", attr_string(rope.attrs, "style")}, {"inverse", attr_i64(rope.attrs, "inverse")}}));
  graph.set_scope("");
  copy.replace_node(id, graph.tensor(rotated).producer);
  copy.replace(rope.outputs[0], rotated);
  const Tensor& old = source.tensor(rope.outputs[0]);
  return old.name.starts_with('%') ? Status() : graph.rename(rotated, old.name);
}

// Earlier nodes by op, operands and attributes.
struct SharedNodes {
  std::vector<NodeId> nodes;

  NodeId find(const Graph& source, const Node& node) const {
    for (const NodeId id : nodes)
      if (source.node(id).op == node.op && source.node(id).inputs == node.inputs &&
          source.node(id).attrs == node.attrs)
        return id;
    return kNoNode;
  }
};

}  // namespace

Result<Graph> with_shared_angles(const Graph& source) {
  std::map<AngleKey, int> readers;
  for (const Node& node : source.nodes())
    if (is_rotation(node)) ++readers[key_of(source, node)];
  GraphCopy copy(source);
  std::map<AngleKey, TensorId> made;
  SharedNodes shared;
  // Tensors follow their operands.
  for (size_t t = 0; t < source.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = source.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = source.node(tensor.producer);
    if (node.op->is_shared) {
      if (const NodeId earlier = shared.find(source, node); earlier != kNoNode) {
        copy.replace(id, copy.mapped(source.node(earlier).outputs[0]));
        continue;
      }
      shared.nodes.push_back(tensor.producer);
    }
    const bool is_shared = is_rotation(node) && readers[key_of(source, node)] > 1;
    TSR_RETURN_IF_ERROR(is_shared ? add_rotation(copy, tensor.producer, made)
                                  : copy.copy_node(tensor.producer));
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
