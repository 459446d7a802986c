// compile: a forward graph and settings -> plans and one Program, without allocating any of its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capi/engine/entry_plans.h"
#include "capi/engine/settings.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/program.h"
#include "graph/trace.h"
#include "parallel/planner/planner.h"
#include "runtime/device_set.h"

namespace tessera {

// What was decided and what it costs; the first entry is the one that was planned, the others follow its
// placement.
struct PlanRecord {
  struct Device {
    std::string name;
    int64_t arena_bytes = 0, host_arena_bytes = 0, file_arena_bytes = 0;
    int64_t max_live_bytes = 0;
    std::string peak;
  };
  std::vector<PlannedEntry> entries;
  std::vector<Candidate> candidates;
  PlanSearch search;
  std::vector<Device> devices;
  std::vector<TraceEvent> predicted_trace;  // of the first entry; where asked for
  // What explains it: the program, where the record is a plan's; else it is with whoever runs it.
  std::shared_ptr<const Program> program;
  Cluster cluster;
  std::string devices_text;          // "cpu:4"
  int64_t memory_limit = 0;          // bytes a device; 0: none
  std::vector<std::string> reasons;  // what else explains it: what frozen parameters change
};

struct Compiled {
  std::shared_ptr<const PlanRecord> record;
  Program program;
};

// What depends on the devices: the element type beside products of fp8, and what their libraries have fused.
TrainerSettings settled(TrainerSettings settings, const DeviceSet& devices);

// Entries "train_step" and "eval" (that one alone when settings.evaluate_only).
// language_model: the loss is made from "logits"; else the graph has its own output "loss".
Result<Compiled> compile_training(const Graph& forward, bool language_model, const TrainerSettings& settings,
                                  const std::shared_ptr<DeviceSet>& devices);

// A prompt is read in chunks, largest first.
struct PrefillChunk {
  std::string_view entry;
  int64_t tokens;
};
// The largest is for GPUs: their products compute faster than weights are read from 300 to 600 rows on.
inline constexpr PrefillChunk kPrefillChunks[] = {
    {"prefill.1024", 1024}, {"prefill.128", 128}, {"prefill.16", 16}};

// Entries "decode" (one token) and those of kPrefillChunks that the context and devices take.
Result<Compiled> compile_generation(const Graph& forward, const GeneratorSettings& settings,
                                    const std::shared_ptr<DeviceSet>& devices);

// Any graph, one entry "main".
Result<Compiled> compile_graph(const Graph& graph, const PlanOptions& options, const DeviceSet& devices);

// Entries that already have plans.
Result<Compiled> compile_entries(std::vector<PlannedEntry> entries, const DeviceSet& devices);

}  // namespace tessera
