// Reports as JSON text: plans, programs, measurements of a session. Keys are documented in tessera.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/program/compile.h"
#include "engine/program/preference_batch.h"
#include "graph/graph.h"
#include "graph/trace.h"
#include "runtime/session.h"

namespace tessera {

std::string plan_json(const PlanRecord& record);
std::string program_json(const Program& program, const DeviceSet& devices);
std::string devices_json(const DeviceSet& devices);
std::string memory_json(std::span<const MemoryReport> memory);  // "devices" of a trainer's report
std::string session_json(std::span<const MemoryReport> memory, std::span<const CommReport> communication,
                         int64_t allocations);

struct TrainerReport {
  int64_t step = 0, skipped_steps = 0, unlabelled_steps = 0, tokens_per_step = 0, allocations_after_first_step = 0;
  std::vector<MemoryReport> memory;
  std::vector<CommReport> communication;
  // Bytes of tensors in a model file and in a
  // checkpoint; host memory while either is written.
  int64_t model_bytes = 0, checkpoint_bytes = 0, saving_memory_bytes = 0, snapshot_bytes = 0;
  std::optional<PreferenceMetrics> preference;  // of the last evaluation
};
std::string trainer_json(const TrainerReport& report, const PlanRecord& plan);

struct GeneratorReport {
  int64_t prompt_tokens = 0, tokens = 0, context = 0;
  int64_t reused_tokens = 0;  // cached prompt tokens, from the text before
  int64_t seed = 0;      // seed of the text
  int64_t launches = 0;  // kernel launches per token
  double prefill_seconds = 0, decode_seconds = 0;
  // Bytes read per token, over all ranks: parameters, and full caches.
  int64_t parameter_bytes_read = 0, cache_bytes_read = 0;
  std::vector<MemoryReport> memory;
};
std::string generator_json(const GeneratorReport& report, const PlanRecord& plan);

struct ScorerReport {
  int64_t sequences = 0, tokens = 0, scored_tokens = 0, windows = 0;
  int64_t positions = 0;  // computed positions, padding included
  int64_t seq = 0, stride = 0, batch = 0;
  int32_t bos = -1;  // first token of windows
  double seconds = 0;
  std::vector<MemoryReport> memory;
};
std::string scorer_json(const ScorerReport& report, const PlanRecord& plan);

struct EmbedderReport {
  int64_t texts = 0, tokens = 0;
  int64_t truncated = 0;  // texts cut to seq tokens
  int64_t positions = 0;  // computed positions, padding included
  int64_t seq = 0, batch = 0, width = 0;
  std::string output, pooling, activation;  // pooling: empty if nothing is pooled; activation: of probabilities
  bool normalize = false;
  std::vector<std::string> labels;
  double seconds = 0;
  std::vector<MemoryReport> memory;
};
std::string embedder_json(const EmbedderReport& report, const PlanRecord& plan);

struct EngineReport {
  int64_t replicas = 1;
  int64_t requests = 0, generated = 0, running = 0, waiting = 0;
  int64_t steps = 0, tokens = 0, cached_tokens = 0, preemptions = 0;
  int64_t drafted = 0, accepted_drafts = 0, adapters = 0;
  int64_t cache_tokens = 0, free_cache_tokens = 0, context = 0, sequences = 0;
  int64_t window_cache_tokens = 0, free_window_cache_tokens = 0, window = 0;
  bool batch_invariant = false;
  double seconds = 0, draft_seconds = 0;
  std::vector<std::string> not_obeyed;  // recommendations of the model's file that are ignored
  std::vector<MemoryReport> memory, draft_memory;  // draft_memory: of the draft model, if any
};
// plans: one per replica, equal except for the devices.
std::string engine_json(const EngineReport& report, std::span<const PlanRecord* const> plans);

Result<std::string> graph_profile_json(const Graph& graph, const Options& options);

// A trace in Chrome's format, for Perfetto and chrome://tracing: a process per rank,
// a thread per stream, an event per instruction. Measured and predicted traces
// differ only in times. `devices`: names by rank; other ranks show their number.
std::string trace_json(std::span<const TraceEvent> events, std::span<const std::string> devices);

}  // namespace tessera
