// What a model says of itself, for exporters: its family and sizes, where its parameters are those.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/models/decoder.h"
#include "graph/models/encoder.h"
#include "graph/models/model_family.h"
#include "serialize/opened_model.h"

namespace tessera {

struct ExportedConfig {
  ModelConfig config;
  const ModelFamily* family = nullptr;
  std::optional<DecoderSizes> decoder;  // of families that decoder.h builds
  std::optional<EncoderSizes> encoder;  // of families that encoder.h builds
  std::vector<std::string> labels;      // of a model that tells classes, where they have names
  std::string problem_type, class_activation;  // serialize/class_head.h
  std::optional<int64_t> padding;              // kPaddingKey
};

// kFailedPrecondition for a model with adapters, kUnsupported for one that is not what its family's builder makes of
// its description.
Result<ExportedConfig> exported_config(const Model& model);

struct RopeFactors {
  HostTensor values;  // f32 [1 or 2, pairs]: parameter "rope_factors"
  std::string words;  // metadata "rope_scaling": a rope_scaling object that may give them; empty: none
};

// Those of the model; none where it does not scale its rotations.
Result<std::optional<RopeFactors>> exported_rope_factors(const OpenedModel& opened);

}  // namespace tessera
