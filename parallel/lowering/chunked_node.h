// ChunkedNode: a node that runs in slices of one factor (ALGEBRA rule 7): the common part of ordered
// slices (chunked_node.cc) and slices that rotate around the ranks of an axis (rotating_node.cc).
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "parallel/lowering/entry_emitter.h"
#include "parallel/sharding/units.h"

namespace tessera {

// The factor's place in each operand, and the combination of partial results.
class EntryEmitter::ChunkedNode {
 public:
  ChunkedNode(EntryEmitter& emitter, NodeId id, EmitPhase phase)
      : e_(emitter),
        id_(id),
        phase_(phase),
        node_(emitter.layout_.graph.node(id)),
        plan_(emitter.layout_.nodes_plan(id)),
        sharding_(emitter.layout_.nodes[index(id)]) {}

 protected:
  struct At {
    int dim = -1;  // of the operand; -1: without the factor
    int64_t span = 1;
  };

  Status locate() {
    const Factor* factor = sharding_.rule.find(plan_.chunk_factor);
    if (factor == nullptr || node_.op->is_view || plan_.tier != Tier::kDevice)
      return refuse("it has no such factor to be cut, or does not run on the device");
    factor_ = static_cast<size_t>(factor - sharding_.rule.factors.data());
    if (factor->kind == FactorKind::kReduce && factor->reduce != ReduceKind::kSum)
      return refuse("a maximum is not put together from slices");
    for (const auto& dims : sharding_.rule.inputs) {
      TSR_ASSIGN_OR_RETURN(const At at, find(dims));
      inputs_.push_back(at);
    }
    for (const auto& dims : sharding_.rule.outputs) {
      TSR_ASSIGN_OR_RETURN(const At at, find(dims));
      outputs_.push_back(at);
    }
    return {};
  }

  Status refuse(std::string_view why) const {
    return Status(StatusCode::kUnsupported,
                  format("{}: cannot run in {} slices of factor '{}': {}", describe(e_.layout_.graph, id_),
                         plan_.chunks, plan_.chunk_factor, why));
  }

  TensorId input(size_t i) const { return node_.inputs[i]; }
  TensorId output(size_t o) const { return node_.outputs[o]; }
  const TensorType& type(TensorId id) const { return e_.layout_.tensor(id).type; }
  const std::string& name(TensorId id) const { return e_.layout_.tensor(id).name; }
  DimWindow window_of(const At& at, Range range) const {
    return at.dim < 0 ? DimWindow{} : DimWindow{at.dim, {range.begin * at.span, range.end * at.span}};
  }
  SlotRef slot(std::string what, TensorId of, const TensorType& local) {
    return e_.builder_.add_slot(format("{}({})", what, name(of)), SlotKind::kTransient, bytes(local),
                                e_.entry_);
  }

  // Adds one slice's results to outputs without the factor. `parts` in the order of those outputs.
  Status merge(const std::vector<SlotRef>& parts) {
    std::vector<TensorType> types;
    std::vector<TensorId> ids;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].dim < 0) {
        types.push_back(e_.builder_.local_type(type(output(o)), sharding_.outputs[o]));
        ids.push_back(output(o));
      }
    if (sums_.empty()) {
      sums_ = parts;
      return {};
    }
    if (!node_.op->chunk_merge.empty()) {
      std::vector<TensorType> both = types;
      both.insert(both.end(), types.begin(), types.end());
      std::vector<SlotRef> operands = sums_;
      operands.insert(operands.end(), parts.begin(), parts.end());
      TSR_ASSIGN_OR_RETURN(sums_, e_.launch_local(node_.op->chunk_merge, both, types, operands, id_,
                                                  name(ids[0]), Tier::kDevice));
      return {};
    }
    for (size_t s = 0; s < sums_.size(); ++s) {
      TSR_ASSIGN_OR_RETURN(sums_[s], add(types[s], sums_[s], parts[s], ids[s]));
    }
    return {};
  }

  Result<SlotRef> add(const TensorType& local, SlotRef a, SlotRef b, TensorId of) {
    TSR_ASSIGN_OR_RETURN(
        const std::vector<SlotRef> sum,
        e_.launch_local("add", {local, local}, {local}, {a, b}, id_, name(of), Tier::kDevice));
    return sum[0];
  }

  void publish_sums() {
    size_t s = 0;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].dim < 0) publish(o, sharding_.outputs[o], sums_[s++]);
  }
  void publish(size_t o, const ShardingSpec& spec, SlotRef at) {
    e_.add_copy(output(o), {spec, at, phase_, true});
  }

  EntryEmitter& e_;
  const NodeId id_;
  const EmitPhase phase_;
  const Node& node_;
  const NodePlan& plan_;
  const NodeSharding& sharding_;
  size_t factor_ = 0;
  std::vector<At> inputs_, outputs_;
  std::vector<SlotRef> sums_;  // of outputs without the factor

 private:
  Result<At> find(const ShardingRule::OperandDims& dims) const {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].find(plan_.chunk_factor) == std::string::npos) continue;
      const MajorFactor major = major_factor(sharding_.rule, dims[d]);
      if (major.name != plan_.chunk_factor) return refuse("it is the minor part of a dim");
      return At{static_cast<int>(d), major.span};
    }
    return At{};
  }
};

}  // namespace tessera
