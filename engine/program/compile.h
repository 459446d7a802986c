// compile: a forward graph and settings -> plans and one Program, without allocating any of its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/entry_plans.h"
#include "engine/settings/embedder_settings.h"
#include "engine/settings/trainer_settings.h"
#include "engine/settings/window_settings.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/program.h"
#include "graph/trace.h"
#include "graph/transform/input_squares.h"
#include "parallel/planner/planner.h"
#include "runtime/device_set.h"

namespace tessera {

// ServingPlan: the memory of an engine, before it is made. Bytes and tokens are those of all replicas, unless said otherwise.
struct ServingPlan {
  struct Device {
    std::string name;
    int64_t arena_bytes = 0;  // weights, keys and values, scratch
    int64_t draft_bytes = 0;  // the draft model's arena
    int64_t limit_bytes = 0;
    bool fits() const { return arena_bytes + draft_bytes <= limit_bytes; }
  };
  int64_t replicas = 1;
  int64_t context = 0;    // tokens of a sequence at most
  int64_t sequences = 0;  // at once
  int64_t page_tokens = 0;
  int64_t cache_tokens = 0, cache_bytes_per_token = 0;
  // Layers with a window shorter than the context have pages of their own; 0: none have.
  int64_t window = 0, window_cache_tokens = 0, window_bytes_per_token = 0;
  int64_t cache_bytes = 0;                               // of both kinds of pages
  int64_t weight_bytes = 0, arranged_weight_bytes = 0;   // of one replica; those copied in the order of the kernels
  int64_t sequences_that_fit = 0;                        // of `context` tokens, in the devices' limits
  std::vector<Device> devices;                           // one replica's after the other's
};

// PlanRecord: a plan's decisions and costs. The first entry was planned; the others follow its placement.
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
  std::vector<TraceEvent> predicted_trace;  // of the first entry; on request
  // The program, if the record belongs to a plan; else its runner has it.
  std::shared_ptr<const Program> program;
  Cluster cluster;
  std::string devices_text;          // "cpu:4"
  int64_t memory_limit = 0;          // bytes a device; 0: none
  int64_t accumulate = 1;            // batches of a step; entries[0] has one
  int64_t network_bytes = 0;         // between machines, in a run of the first entry
  std::vector<std::string> reasons;  // further reasons, such as frozen parameters
  std::optional<ServingPlan> serving;  // of an engine's plan
};

struct CompiledProgram {
  std::shared_ptr<const PlanRecord> record;
  Program program;
};

// Fills in the settings that depend on the devices:
// the element type next to fp8, and fused epilogues.
TrainerSettings finalized(TrainerSettings settings, const DeviceSet& devices);

// The entry that accumulates gradients of this loss, one for each of settings.losses; and the entries below.
std::string accumulation_entry(TokenLoss loss);
inline constexpr std::string_view kTrainEntry = "train_step";
inline constexpr std::string_view kEvalEntry = "eval";
// Accumulates one of the settings.accumulate batches of a whole step; kUpdateEntry applies the gradients.
inline constexpr std::string_view kAccumulateEntry = "accumulate.step";
inline constexpr std::string_view kUpdateEntry = "update";
inline constexpr std::string_view kForwardEntry = "forward";
// Log probabilities of labels, for the reference point of PreferenceLoss::kKto.
inline constexpr std::string_view kMismatchedEntry = "mismatched";

// Compiles the entries "train_step" and "eval" (only "eval" with settings.evaluate_only), and the entries of
// partial steps. With language_model the loss is computed from "logits"; else the graph has an output "loss".
Result<CompiledProgram> compile_training(const Graph& forward, bool language_model,
                                         const TrainerSettings& settings,
                                         const std::shared_ptr<DeviceSet>& devices);

// Compiles kForwardEntry alone: log probabilities of labels. `settings` have evaluate_only.
Result<CompiledProgram> compile_logprobs(const Graph& forward, const TrainerSettings& settings,
                                         const std::shared_ptr<DeviceSet>& devices);

// TrainedPlan: a trainer's program. Programs that follow it use its weights in place and its numerics.
struct TrainedPlan {
  const TrainerSettings& settings;
  std::span<const PlannedEntry> entries;
};

// ScoreEntry: an entry that scores windows of up to `tokens` tokens.
struct ScoreEntry {
  std::string name;
  int64_t tokens;
};
// The entry for settings.seq tokens first, then shorter ones, which make short texts cheap.
std::vector<ScoreEntry> score_entries(const ScorerSettings& settings);

// Compiles `score_entries`. `settings` are finalized.
Result<CompiledProgram> compile_scoring(const Graph& forward, const ScorerSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices);

// Entries for texts of up to settings.seq tokens, then shorter ones.
std::vector<ScoreEntry> embedding_entries(const EmbedderSettings& settings);
// Compiles them. `settings` are finalized.
Result<CompiledProgram> compile_embedding(const Graph& forward, const EmbedderSettings& settings,
                                          const std::shared_ptr<DeviceSet>& devices);

// Compiles entry "importance": windows of settings.seq tokens. `outputs`: those of make_input_squares.
Result<CompiledProgram> compile_importance(const Graph& forward, const ImportanceSettings& settings,
                                           const std::shared_ptr<DeviceSet>& devices,
                                           std::vector<InputSquares::Output>* outputs);

// Compiles any graph as one entry "main".
Result<CompiledProgram> compile_graph(const Graph& graph, const PlanOptions& options,
                                      const DeviceSet& devices);

// Compiles entries that already have plans.
Result<CompiledProgram> compile_entries(std::vector<PlannedEntry> entries, const DeviceSet& devices);

}  // namespace tessera
