// The tensors of a transformer that is known by its sizes alone, as a plan lays them out: names and dims as
// the model families build them, one row for all blocks.
#pragma once

#include <vector>

#include "graph/explanation.h"
#include "parallel/analytic/foreign_plan.h"
#include "parallel/analytic/transformer.h"

namespace tessera {

// Parameters, and for each its gradient and optimizer state. Bytes are those of one tensor on one device.
std::vector<ExplainedTensor> transformer_tensors(const TransformerShape& model, const ForeignPlan& plan);

}  // namespace tessera
