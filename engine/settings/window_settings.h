// Settings of models that read texts in windows: scorers and importance collectors. Keys: tessera.h.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "graph/base/result.h"
#include "graph/base/status.h"

namespace tessera {

// WindowBos: whether windows begin with the tokenizer's BOS token: never, if texts do, or always.
enum class WindowBos : uint8_t { kNone, kAuto, kAlways };

// ScorerSettings: windows of texts, and their batch.
struct ScorerSettings {
  ComputeSettings compute;
  InferenceSettings inference;
  int64_t seq = 0;     // window length in tokens; 0: the model's context, at most 2048
  int64_t stride = 0;  // 0: half of seq
  int64_t batch = 0;   // concurrent windows; 0: one per device
  WindowBos bos = WindowBos::kNone;
  bool share_prefixes = false;  // by an engine, where one serves
  bool measure_memory = false;
};

// ImportanceSettings: windows of the text whose matrix inputs are summed.
struct ImportanceSettings {
  ComputeSettings compute;
  int64_t seq = 0;    // window length in tokens; 0: the model's context, at most 512
  int64_t batch = 0;  // concurrent windows; 0: one per device
  WindowBos bos = WindowBos::kNone;
  std::string name;   // name of the text
};

Result<ScorerSettings> read_scorer_settings(const Options& options);
Result<ImportanceSettings> read_importance_settings(const Options& options);

// Fills in window, stride and batch. kInvalidArgument for a window above the
// model's context (`longest`, 0: unknown), or a stride above the window.
Status finalize_windows(ScorerSettings& settings, int64_t longest, int32_t devices);

}  // namespace tessera
