// Propagation: fills in a Plan for a named strategy in one walk over the graph, without naming models or ops.
//
// Along dp: the batch factor, wherever it occurs.
// Along tp, per node, the first applicable:
//   1. the gradient of a parameter has the parameter's layout;
//   2. a node with a weight (a parameter of two or more dims that it contracts): where the weight was split
//   before, the
//      same again; else its contracted factor when the other operand arrives split along it (row), or when
//      the factor is looked up rather than contracted (vocabulary); else the factor it brings into the result
//      (column);
//   3. the factor along which an operand arrives split;
//   4. with sp: the sequence, for nodes that work on [B, T, ...] and would repeat the same work on every
//   rank;
//   5. none.
// Sums are carried through nodes that are linear in all their operands, when all of those are addends.
// Update nodes have the layout of their optimizer state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct PropagationOptions {
  StrategySpec spec;
  int64_t global_batch = 1;
  // Replicates a batch smaller than dp (generating one sequence on a training mesh).
  bool may_replicate_batch = false;
  // Placements of parameters and state to keep, by name, on the mesh of `spec`.
  std::map<std::string, ShardingSpec> stored;
  // Blocks per stage; empty: free cut, or by `owners`.
  std::vector<int64_t> stage_blocks = {};
  // Owner stages of parameters, by name; empty: free cut.
  std::map<std::string, int32_t> owners;
  // Stages that hold parameters and state, by name, owner first, for those without a forward reader.
  std::map<std::string, std::vector<int32_t>> holders;
};

// Number of micro-batches: from `mb=`; by default a pipeline gets a few per
// device if it `may_cut` the batch (a training step, parallel/batch_cut.h).
Result<int32_t> micro_batches_of(const StrategySpec& spec, int64_t global_batch, bool may_cut);

Result<Plan> propagate(const Graph& graph, const PropagationOptions& options);

}  // namespace tessera
