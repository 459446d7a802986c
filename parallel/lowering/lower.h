// lower: (Graph, Plan, KernelCatalog) -> Program. Decides nothing. In order: bind symbols, shard (inserting
// every collective explicitly), repeat micro-batches, insert recomputation, order, place slots in the arena.
#pragma once

#include <span>
#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "graph/program.h"

namespace tessera {

// Entry points of one Program share parameters, constants and state by tensor name; those must agree in type
// and placement. The transient region is the maximum over entries.
struct EntrySpec {
  std::string name;  // "train_step"
  const Graph* graph = nullptr;
  const Plan* plan = nullptr;
};

Result<Program> lower(std::span<const EntrySpec> entries, const KernelCatalog& catalog);

// As `lower`, of one plan, but only the first rank of every pipeline stage is really lowered; the others are
// taken to do the same in their own places. Right where shards are even, and what the planner compares
// candidates by; not to be run. Where ranks cannot be alike (a ring that leaves some out, a matrix with an owner) all are lowered.
Result<Program> lower_representatives(const EntrySpec& entry, const KernelCatalog& catalog);

struct EntryLayout;  // parallel/lowering/entry_layout.h

// The first rank of a place of a layout, alone. `packs`: as in slot_allocation.h; without, it cannot be run.
Result<RankProgram> lower_place(const EntryLayout& layout, const KernelCatalog& catalog, size_t place,
                                bool packs = true);

}  // namespace tessera
