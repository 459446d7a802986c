// ExportedConfig: a model's family and sizes for exporters, if its parameters match them.
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
  std::optional<DecoderSizes> decoder;  // for families built by decoder.h
  std::optional<EncoderSizes> encoder;  // for families built by encoder.h
  std::vector<std::string> labels;      // class names of a classifier, if any
  std::string problem_type, class_activation;  // serialize/class_head.h
  std::optional<int64_t> padding;              // kPaddingKey
};

// kFailedPrecondition for a model with adapters; kUnsupported for
// one that its family's builder does not make from its description.
Result<ExportedConfig> exported_config(const Model& model);

struct RopeFactors {
  HostTensor values;  // f32 [1 or 2, pairs]: parameter "rope_factors"
  std::string words;  // metadata "rope_scaling": a rope_scaling object that may produce the factors; empty: none
};

// The model's factors; nullopt without scaled rotations.
Result<std::optional<RopeFactors>> exported_rope_factors(const OpenedModel& opened);

}  // namespace tessera
