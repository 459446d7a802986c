// Propagation: fills in a Plan for a named strategy by walking the graph once. No model and no op is named.
//
// Along dp: the batch factor, wherever it occurs.
// Along tp, per node, the first that applies:
//   1. the gradient of a parameter lies as the parameter does;
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
// Update nodes run where the optimizer state lies.
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
  // Leave the batch whole where it is smaller than dp (generating one sequence on a mesh made for training).
  bool may_replicate_batch = false;
  // Placements of parameters and state to keep, by name, on the mesh of `spec`.
  std::map<std::string, ShardingSpec> stored;
  // Blocks of every stage; empty: stages are cut freely, or as `owners` has them.
  std::vector<int64_t> stage_blocks = {};
  // Stages that own parameters, by name, to keep; empty: stages are cut freely.
  std::map<std::string, int32_t> owners;
  // Stages that hold parameters and state, by name, the owner's first, to keep where no forward node reads them.
  std::map<std::string, std::vector<int32_t>> holders;
};

// In how many equal parts a step's batch passes: what `mb=` says; left open, a pipeline wants a few for every
// device where it `may_cut` the batch (a step that trains, parallel/batch_cut.h).
Result<int32_t> micro_batches_of(const StrategySpec& spec, int64_t global_batch, bool may_cut);

Result<Plan> propagate(const Graph& graph, const PropagationOptions& options);

}  // namespace tessera
