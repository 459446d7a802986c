// EntryPlans: plans of a program's entry points, which fit their devices together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/compute_settings.h"
#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "graph/program.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/host_tier.h"
#include "runtime/device_set.h"

namespace tessera {

struct GraphToPlan {
  std::string name;  // of the entry: "train_step"
  std::shared_ptr<const Graph> graph;
  std::vector<std::pair<std::string, int64_t>> symbols;
  bool moves_state_only = false;  // follows the first entry's state (parallel/strategy/state_plan.h)

  // Binds those `symbols` that the graph has.
  static GraphToPlan create(std::string name, std::shared_ptr<const Graph> graph,
                            const std::vector<std::pair<std::string, int64_t>>& symbols);
};

// PlannedEntry: one entry point with its graph and plan.
struct PlannedEntry {
  std::string name;
  std::shared_ptr<const Graph> graph;
  Plan plan;
};

// EntryPlans: plans of entries that share an arena, and their
// program. The first was searched; the others follow its placement.
struct EntryPlans {
  std::vector<PlannedEntry> entries;
  std::vector<Candidate> candidates;
  PlanSearch search;
  Program program;

  // Bytes under the memory limit, of the fullest device (parallel/pricing/host_tier.h).
  int64_t largest_limited_bytes(const Cluster& cluster) const {
    int64_t largest = 0;
    for (const RankProgram& rank : program.ranks) largest = std::max(largest, limited_bytes(rank, cluster));
    return largest;
  }
};

// Makes the program of the plans, of the ranks in `only`; nullopt: of all.
Status lower_entries(EntryPlans& plans, const KernelCatalog& catalog, std::optional<RankSet> only = std::nullopt);

// Searches a plan for the first entry, or reads it from the file that `compute` names; the
// others follow. kOutOfMemory, with the smallest sufficient limit, if they do not fit together.
// For devices of several processes the first process plans, and each lowers its own ranks.
Result<EntryPlans> plan_entries(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                int64_t batch, const std::shared_ptr<DeviceSet>& devices);

// Adds to `refused`, an error of plan_entries, the number
// of devices that suffices, if a bounded search finds it.
Status with_device_advice(const Status& refused, std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                          int64_t batch, const DeviceSet& devices);

// Lower bound on the bytes per device of any plan of the first entry, found without lowering; 0: none.
Result<int64_t> least_bytes_of_entries(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                       int64_t batch, const DeviceSet& devices);

// Plans that follow another program's entries on the same devices, with its placement of parameters.
Result<EntryPlans> plan_entries_along(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                      std::span<const PlannedEntry> followed, const DeviceSet& devices);

// Bytes per device that plans may use: `memory_limit`,
// or the memory of the smallest device; 0: no limit.
int64_t limit_of(const Cluster& cluster, int64_t memory_limit);

// Checksum of the source of the devices' prices.
uint64_t profile_of(const DeviceSet& devices);

// `given` in the order of `plan`'s nodes and tensors: canonical,
// or, for plans of earlier versions, as given. Names are those
// of `given`. kInvalidArgument for a plan of another graph.
Result<Graph> graph_of_plan(const Plan& plan, const Graph& given);

// Parses a plan of `graph`. kInvalidArgument for a plan of another graph.
Result<Plan> parse_plan_of(std::string_view text, const Graph& graph);
// Reads a plan of `graph` from a file.
Result<Plan> read_plan_file(const std::string& path, const Graph& graph);

// Checks that the plan is consistent with itself, the batch and the symbols.
Status check_followed(const Plan& plan, const Graph& graph, int64_t batch,
                      const std::vector<std::pair<std::string, int64_t>>& symbols);

// Checks that the predicted bytes equal the program's, unless the plan was edited.
Status check_promise(const Plan& plan, const Program& program);

}  // namespace tessera
