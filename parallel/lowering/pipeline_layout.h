// Pipelines in a lowered entry: the places of nodes and tensors, and every place's order of tasks.
//
// A place is a set of devices: one mesh, shared by all stages on it. Within a place lowering
// works as without a pipeline. Between places values travel shard by shard, from each rank
// to the one in the same position, in the producer's layout; the receiver converts.
//
// Order. The schedule's replay at equal costs orders all actions of all places by their
// begin. Values that an action reads from another place are sent and received just before
// it, in that order; each place's list is its part of it. So sends and receives cannot
// deadlock, even if each blocks its rank: the first unfinished one can always proceed.
#pragma once

#include "graph/base/result.h"
#include "parallel/lowering/entry_layout.h"

namespace tessera {

// Sets the places, and the place of each node, from the plan's stages.
Status find_places(EntryLayout& layout);

// Moves sums of gradients from several stages (tied parameters) to the update
// phase: each stage first adds its own over micro-batches, and they are sent once.
Status defer_tied_sums(EntryLayout& layout);

// Sets the places of inputs, parameters, constants, state and outputs, and every place's tasks.
Status order_tasks(EntryLayout& layout);

}  // namespace tessera
