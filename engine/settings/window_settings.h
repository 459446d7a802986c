// Settings of what reads texts in windows: scorers, and collectors of importance. Keys: tessera.h.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "graph/base/result.h"
#include "graph/base/status.h"

namespace tessera {

// WindowBos: whether windows begin with the BOS token of the model's tokenizer: where texts do, or in any case.
enum class WindowBos : uint8_t { kNone, kAuto, kAlways };

// ScorerSettings: how texts are cut into windows, and how these are computed.
struct ScorerSettings {
  ComputeSettings compute;
  InferenceSettings inference;
  int64_t seq = 0;     // tokens of a window; 0: the model's context, at most 2048
  int64_t stride = 0;  // 0: half of it
  int64_t batch = 0;   // windows at once; 0: as many as devices
  WindowBos bos = WindowBos::kNone;
  bool share_prefixes = false;  // by an engine, where one serves
  bool measure_memory = false;
};

// ImportanceSettings: how a text is cut into windows whose inputs of matrices are summed.
struct ImportanceSettings {
  ComputeSettings compute;
  int64_t seq = 0;    // tokens of a window; 0: the model's context, at most 512
  int64_t batch = 0;  // windows at once; 0: as many as devices
  WindowBos bos = WindowBos::kNone;
  std::string name;   // of the text
};

Result<ScorerSettings> read_scorer_settings(const Options& options);
Result<ImportanceSettings> read_importance_settings(const Options& options);

// Fills in window, stride and batch; kInvalidArgument for a window above the model's context (`longest`, 0: unknown),
// or a stride above the window.
Status finalize_windows(ScorerSettings& settings, int64_t longest, int32_t devices);

}  // namespace tessera
