// Settings of embedders, read from Options. Keys: tessera.h.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "engine/sampling/pooling.h"
#include "graph/base/result.h"
#include "graph/base/status.h"

namespace tessera {

// EmbedderSettings: what is computed of texts, and how many at once.
struct EmbedderSettings {
  enum class Output : uint8_t { kEmbedding, kLogits, kProbabilities };

  ComputeSettings compute;
  InferenceSettings inference;
  int64_t seq =
      0;  // tokens of a text, at most; 0: what the model's file says, else its context, at most 2048
  int64_t batch = 0;  // texts at once; 0: 8 for each device
  Pooling pooling = Pooling::kAuto;
  std::optional<bool> normalize;  // to length 1; none: as the model's file says
  Output output = Output::kEmbedding;
  bool pairs = false;  // texts 2i and 2i + 1 are read together
  bool share_prefixes = false;  // by an engine, where one serves
  bool measure_memory = false;
};

Result<EmbedderSettings> read_embedder_settings(const Options& options);
// Fills in tokens and batch. `longest`: the model's context, `wanted`: the tokens of a text that its file names; 0:
// unknown. kInvalidArgument for more tokens than the context.
Status finalize_texts(EmbedderSettings& settings, int64_t longest, int64_t wanted, int32_t devices);

}  // namespace tessera
