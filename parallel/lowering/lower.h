// lower: (Graph, Plan, KernelCatalog) -> Program. Makes no decisions. In order: bind symbols, shard (inserting
// every collective explicitly), repeat micro-batches, insert recomputation, order, place slots in the arena.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "graph/program.h"

namespace tessera {

// EntrySpec: an entry point. Entries of one Program share parameters, constants and state
// by name, with equal type and placement. The transient region is the maximum over entries.
struct EntrySpec {
  std::string name;  // "train_step"
  const Graph* graph = nullptr;
  const Plan* plan = nullptr;
};

// `only`: the ranks to lower, of a world that may have more of them than the plan; nullopt: all of the plan. A rank's program
// does not depend on which others are lowered with it, except that the first one binds what none of them has, without pieces:
// so the names and types of all tensors are known everywhere.
Result<Program> lower(std::span<const EntrySpec> entries, const KernelCatalog& catalog,
                      std::optional<RankSet> only = std::nullopt);

// As `lower` for one plan, but only the first rank of every pipeline stage is lowered; the others
// are assumed equal in their places. Exact for even shards; used to compare candidates, not to
// run. If ranks must differ (a ring that omits some, a matrix with an owner) all are lowered.
Result<Program> lower_representatives(const EntrySpec& entry, const KernelCatalog& catalog);

struct EntryLayout;  // parallel/lowering/entry_layout.h

// Lowers the first rank of one place. `packs`: see slot_allocation.h; without it the program cannot run.
Result<RankProgram> lower_place(const EntryLayout& layout, const KernelCatalog& catalog, size_t place,
                                bool packs = true);

}  // namespace tessera
