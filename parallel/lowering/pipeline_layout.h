// Pipelines in a lowered entry: on which devices nodes run and tensors lie, and who does what in which order.
//
// A place is a set of devices: one mesh, shared by all stages on it. Inside a place lowering works as it does
// without a pipeline. Between places values travel whole shard by whole shard, from each rank to the one in
// the same position of the other mesh, lying as they were produced; who receives converts.
//
// Order. The schedule's replay at equal costs puts all actions of all places in one line, by when they begin.
// What an action reads from another place is sent and received just before it, in that same line; every
// place's list is what concerns it, in the line's order. So sends and receives cannot wait in a circle, even
// where each blocks its rank: of all that is not done yet, whatever comes first in the line can go on.
#pragma once

#include "graph/base/result.h"
#include "parallel/lowering/entry_layout.h"

namespace tessera {

// Places and the place of each node, from the plan's stages.
Status find_places(EntryLayout& layout);

// Sums of gradients that meet from several stages (tied parameters) move to the update phase: each stage adds
// up its own over the micro-batches first, and they are sent once.
Status defer_tied_sums(EntryLayout& layout);

// Where inputs, parameters, constants, state and outputs lie, and every place's tasks.
Status order_tasks(EntryLayout& layout);

}  // namespace tessera
