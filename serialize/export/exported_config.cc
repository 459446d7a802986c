#include "serialize/export/exported_config.h"

#include <algorithm>

#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/class_head.h"

namespace tessera {
namespace {

// Checks that the parameters are those of the graph built from the description.
Status check_parameters(const Graph& graph, const ModelConfig& config) {
  TSR_ASSIGN_OR_RETURN(const Graph described, build_model(config));
  const auto parameters = described.tensors_of_kind(TensorKind::kParameter);
  for (const TensorId id : parameters) {
    const Tensor& wanted = described.tensor(id);
    const auto found = graph.find_tensor(wanted.name);
    if (!found || graph.type(*found).shape != wanted.type.shape)
      return Status(StatusCode::kUnsupported,
                    format("the model is described as '{}', whose parameter '{}' [{}] it has not: only "
                           "models that are what a family's builder makes can be exported",
                           to_text(config), wanted.name, wanted.type.shape));
  }
  const auto own = graph.tensors_of_kind(TensorKind::kParameter);
  if (own.size() == parameters.size()) return {};
  for (const TensorId id : own)
    if (!described.find_tensor(graph.tensor(id).name))
      return Status(StatusCode::kUnsupported,
                    format("parameter '{}' is no part of what the model is described as ('{}')",
                           graph.tensor(id).name, to_text(config)));
  return {};
}

}  // namespace

Result<ExportedConfig> exported_config(const Model& model) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(model.graph));
  if (const size_t adapters = find_adapters(logical.graph).size(); adapters > 0)
    return Status(StatusCode::kFailedPrecondition,
                  format("the model has {} low-rank adapters, which exported files do not hold; merge them "
                         "first (tessera merge, tsr_model_merge_adapters)",
                         adapters));
  const auto description = model.metadata.find("description");
  if (description == model.metadata.end())
    return Status(StatusCode::kUnsupported,
                  "the model does not say which family it is of (metadata 'description'): models that were "
                  "built op by op, and those whose products are scaled (NVFP4), cannot be exported");
  ExportedConfig exported;
  TSR_ASSIGN_OR_RETURN(exported.config, parse_shorthand(description->second));
  exported.family = find_model_family(exported.config.family);
  TSR_CHECK(exported.family != nullptr, "a shorthand is of a family");
  TSR_RETURN_IF_ERROR(check_parameters(model.graph, exported.config));
  if (exported.family->decoder != nullptr) {
    TSR_ASSIGN_OR_RETURN(exported.decoder, decoder_sizes(exported.config, exported.family->decoder));
  }
  if (exported.family->encoder != nullptr) {
    TSR_ASSIGN_OR_RETURN(exported.encoder, encoder_sizes(exported.config, exported.family->encoder));
  }
  const auto value = [&](std::string_view key) {
    const auto found = model.metadata.find(std::string(key));
    return found == model.metadata.end() ? std::string() : found->second;
  };
  exported.labels = class_labels(value(kLabelsKey));
  exported.problem_type = value(kProblemTypeKey);
  exported.class_activation = value(kClassActivationKey);
  exported.padding = parse_i64(value(kPaddingKey));
  return exported;
}

Result<std::optional<RopeFactors>> exported_rope_factors(const OpenedModel& opened) {
  const auto found = std::ranges::find(opened.parameters, "rope_factors", &TensorSource::name);
  if (found == opened.parameters.end()) return std::optional<RopeFactors>();
  RopeFactors factors;
  TSR_ASSIGN_OR_RETURN(factors.values, read_whole(*found));
  if (factors.values.type.dtype != DType::kF32)
    return Status(StatusCode::kUnsupported, format("parameter 'rope_factors' is stored as {}, wanted f32",
                                                   to_text(factors.values.type.dtype)));
  const auto words = opened.model.metadata.find("rope_scaling");
  if (words != opened.model.metadata.end()) factors.words = words->second;
  return std::optional(std::move(factors));
}

}  // namespace tessera
