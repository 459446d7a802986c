// BatchCut: the kind of each value if micro-batches are computed
// separately, and whether combining them yields the whole batch's result.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

enum class BatchPart : uint8_t {
  kSame,    // independent of the batch: equal in every micro-batch
  kRows,    // has a batch dim: a micro-batch has its rows
  kAddend,  // a sum over the batch: micro-batches have addends
  kTotal,   // known after all micro-batches: a nonlinear function of such a sum
};

struct BatchCut {
  std::vector<BatchPart> parts;  // by tensor
  std::vector<NodeId> last;  // forward and backward nodes that make totals: run once, like update nodes
};

// For `symbolic`, with symbol B unbound. kInvalidArgument, naming the node, if micro-batches
// cannot be separated: sequences that read a sum over the batch or its function (backward of
// a root-of-mean loss), a maximum over the batch, two sequences that mix.
Result<BatchCut> cut_batch(const Graph& symbolic);

}  // namespace tessera
