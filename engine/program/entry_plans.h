// EntryPlans: plans for the entry points of one program, which fit their devices together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
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

  // Binds those of `symbols` that the graph has.
  static GraphToPlan create(std::string name, std::shared_ptr<const Graph> graph,
                            const std::vector<std::pair<std::string, int64_t>>& symbols);
};

// PlannedEntry: one entry point with its graph and plan.
struct PlannedEntry {
  std::string name;
  std::shared_ptr<const Graph> graph;
  Plan plan;
};

// EntryPlans: plans of entries that share an arena, and their program. The first was searched for; the others
// follow its placement.
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

// Makes the program of the plans.
Status lower_entries(EntryPlans& plans, const KernelCatalog& catalog);

// Searches a plan for the first entry, or reads it from the file that `compute` names; the others follow it.
// kOutOfMemory, with the smallest limit, where they do not fit together.
Result<EntryPlans> plan_entries(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                int64_t batch, const std::shared_ptr<DeviceSet>& devices);

// `refused`, a status of plan_entries for the same question, and how many devices would do, as far as a bounded search
// tells.
Status with_device_advice(const Status& refused, std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                          int64_t batch, const DeviceSet& devices);

// A lower bound of the bytes that any plan of the first entry takes of a device, found without lowering one; 0: none.
Result<int64_t> least_bytes_of_entries(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                       int64_t batch, const DeviceSet& devices);

// Plans that all follow the entries of another program on the same devices: parameters are where that has them.
Result<EntryPlans> plan_entries_along(std::span<const GraphToPlan> graphs, const ComputeSettings& compute,
                                      std::span<const PlannedEntry> followed, const DeviceSet& devices);

// Bytes of a device that plans may fill: `memory_limit`, or if that is 0 the memory of the smallest device.
// 0: no limit.
int64_t limit_of(const Cluster& cluster, int64_t memory_limit);

// Checksum of the source of the devices' prices.
uint64_t profile_of(const DeviceSet& devices);

// `given` in the order that `plan` numbers its nodes and tensors in: the canonical one, or, for plans of
// earlier versions, the order given. Names are those of `given`. kInvalidArgument where the plan is another
// graph's.
Result<Graph> graph_of_plan(const Plan& plan, const Graph& given);

// The plan of `graph` in a text. kInvalidArgument where it is another graph's.
Result<Plan> parse_plan_of(std::string_view text, const Graph& graph);
// The plan of `graph` in the file at `path`.
Result<Plan> read_plan_file(const std::string& path, const Graph& graph);

// Checks that the plan is consistent, and for this batch and these symbols.
Status check_followed(const Plan& plan, const Graph& graph, int64_t batch,
                      const std::vector<std::pair<std::string, int64_t>>& symbols);

// Checks that the promised bytes are those of its program, unless the plan was edited.
Status check_promise(const Plan& plan, const Program& program);

}  // namespace tessera
