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

// EmbedderSettings: the computed vectors, and the batch.
struct EmbedderSettings {
  enum class Output : uint8_t { kEmbedding, kLogits, kProbabilities };

  ComputeSettings compute;
  InferenceSettings inference;
  int64_t seq =
      0;  // longest text in tokens; 0: the model file's limit, else its context, at most 2048
  int64_t batch = 0;  // concurrent texts; 0: 8 per device
  Pooling pooling = Pooling::kAuto;
  std::optional<bool> normalize;  // to length 1; nullopt: as in the model's file
  Output output = Output::kEmbedding;
  bool pairs = false;  // texts 2i and 2i + 1 are read together
  bool share_prefixes = false;  // by an engine, where one serves
  bool measure_memory = false;
};

Result<EmbedderSettings> read_embedder_settings(const Options& options);
// Fills in tokens and batch. `longest`: the model's context; `wanted`: the text
// length in its file; 0: unknown. kInvalidArgument for more tokens than the context.
Status finalize_texts(EmbedderSettings& settings, int64_t longest, int64_t wanted, int32_t devices);

}  // namespace tessera
