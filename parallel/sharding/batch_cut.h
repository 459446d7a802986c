// BatchCut: what the values of a graph are where each micro-batch is computed apart, and whether what comes
// of them all is still what the whole batch yields.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

enum class BatchPart : uint8_t {
  kSame,    // nothing of the batch is in it: every micro-batch has the same
  kRows,    // has the batch as a dim: a micro-batch has its rows
  kAddend,  // a sum over the batch: micro-batches have addends of it
  kTotal,   // known when all micro-batches are through: a function of such a sum that is not linear in it
};

struct BatchCut {
  std::vector<BatchPart> parts;  // by tensor
  std::vector<NodeId> last;  // forward and backward nodes that make totals: they run once, like update nodes
};

// Of `symbolic`, whose symbol B is not bound. kInvalidArgument, naming the node, where micro-batches cannot
// be computed apart: sequences that read a sum over the batch, or what is made of one (the backward pass of a
// loss that is the root of a mean), a maximum over the batch, two sequences that meet.
Result<BatchCut> cut_batch(const Graph& symbolic);

}  // namespace tessera
