#include "parallel/sharding/batch_cut.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "graph/base/text.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/schedule.h"

namespace tessera {

namespace {

class BatchCutter {
 public:
  explicit BatchCutter(const Graph& graph) : graph_(graph) {
    for (size_t s = 0; s < graph.symbols().size(); ++s)
      if (graph.symbols()[s].name == "B") batch_ = symbol_extent(static_cast<int32_t>(s));
  }

  Result<BatchCut> run() {
    for (const Tensor& tensor : graph_.tensors()) {
      const bool rows = batch_ && std::ranges::count(tensor.type.shape.dims(), *batch_) > 0;
      cut_.parts.push_back(rows ? BatchPart::kRows : BatchPart::kSame);
    }
    if (!batch_) return std::move(cut_);
    for (size_t n = 0; n < graph_.nodes().size(); ++n)
      if (graph_.nodes()[n].phase != Phase::kUpdate)
        TSR_RETURN_IF_ERROR(visit(NodeId{static_cast<uint32_t>(n)}));
    return std::move(cut_);
  }

 private:
  Status refuse(NodeId id, std::string_view why) const {
    return Status(
        StatusCode::kInvalidArgument,
        format("{} {}; micro-batches, which are computed one after another, would each have their own: "
               "plan one (leave mb out)",
               describe(graph_, id), why));
  }

  Status visit(NodeId id) {
    const Node& node = graph_.node(id);
    TSR_ASSIGN_OR_RETURN(const ShardingRule rule, rule_of(graph_, node));
    const Factor* over = nullptr;  // the batch factor
    for (const Factor& factor : rule.factors) {
      if (factor.extent != *batch_) continue;
      if (over != nullptr) return refuse(id, "relates every sequence of the batch to every other");
      over = &factor;
    }
    std::vector<bool> addends;
    bool any = false, total = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const BatchPart part = reads_input(node, i) ? cut_.parts[index(node.inputs[i])] : BatchPart::kSame;
      addends.push_back(part == BatchPart::kAddend);
      any = any || addends.back();
      total = total || part == BatchPart::kTotal;
    }
    if (over != nullptr)
      return any || total ? refuse(id, "gives every sequence what is summed over all of the batch")
                          : take_rows(id, rule, *over);
    if (total || (any && !is_linear(rule, addends))) {
      cut_.last.push_back(id);
      make(id, BatchPart::kTotal);
    } else if (any) {
      make(id, BatchPart::kAddend);
    }
    return {};
  }

  void make(NodeId id, BatchPart part) {
    for (const TensorId output : graph_.node(id).outputs) cut_.parts[index(output)] = part;
  }

  // In all addends jointly.
  static bool is_linear(const ShardingRule& rule, const std::vector<bool>& addends) {
    return std::ranges::any_of(rule.linear, [&](const std::vector<int>& set) {
      for (size_t i = 0; i < addends.size(); ++i)
        if (addends[i] != (std::ranges::count(set, static_cast<int>(i)) > 0)) return false;
      return true;
    });
  }

  Status take_rows(NodeId id, const ShardingRule& rule, const Factor& over) {
    const Node& node = graph_.node(id);
    const auto has = [&](const ShardingRule::OperandDims& dims) {
      return std::ranges::any_of(
          dims, [&](const std::string& dim) { return dim.find(over.name) != std::string::npos; });
    };
    if (over.kind == FactorKind::kPass || node.op->any_part) return {};
    if (node.op->sums_into >= 0) return make(id, BatchPart::kAddend), Status();  // micro-batches go on from one another
    if (over.kind != FactorKind::kReduce) return refuse(id, "works on the whole batch at once");
    if (over.reduce != ReduceKind::kSum) return refuse(id, "takes a maximum over the batch");
    // A term added once to the sum over the batch (a bias) would be added by every micro-batch.
    for (const std::vector<int>& set : rule.linear) {
      const auto reduces = [&](int i) { return has(rule.inputs[static_cast<size_t>(i)]); };
      if (std::ranges::any_of(set, reduces) && !std::ranges::all_of(set, reduces))
        return refuse(id, "adds to a sum over the batch what is not of the batch");
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      if (!has(rule.outputs[o])) cut_.parts[index(node.outputs[o])] = BatchPart::kAddend;
    return {};
  }

  const Graph& graph_;
  std::optional<int64_t> batch_;
  BatchCut cut_;
};

}  // namespace

Result<BatchCut> cut_batch(const Graph& symbolic) { return BatchCutter(symbolic).run(); }

}  // namespace tessera
