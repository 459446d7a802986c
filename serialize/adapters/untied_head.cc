#include "serialize/adapters/untied_head.h"

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {
constexpr const char *kTable = "token_embedding", *kHead = "output";
}  // namespace

bool has_tied_head(const Model& model) {
  return model.graph.find_tensor(kTable) && !model.graph.find_tensor(kHead);
}

Result<Model> with_untied_head(const Model& model) {
  TSR_ASSIGN_OR_RETURN(ModelConfig config, parse_shorthand(model.metadata.at("description")));
  config.flags["tied"] = false;
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(model.graph));
  Model made = model;
  TSR_ASSIGN_OR_RETURN(const Graph graph, build_model(config));
  if (const auto stored = logical.stored.find(kTable); stored != logical.stored.end())
    logical.stored[kHead] = stored->second;
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(graph, {.types = logical.stored}));
  if (!made.graph.find_tensor(kHead))
    return Status(
        StatusCode::kUnsupported,
        format("the head of {} is the token embedding, and cannot be apart from it", config.family));
  made.metadata["description"] = to_text(config);
  made.metadata["base_head"] = "tied";
  if (const auto value = model.parameters.find(kTable); value != model.parameters.end()) {
    const TensorType& type = made.graph.type(*made.graph.find_tensor(kHead));
    HostTensor head = value->second;
    if (head.type != type) {
      TSR_ASSIGN_OR_RETURN(head, widen_weight(head));
    }
    made.parameters[kHead] = std::move(head);
  }
  return made;
}

}  // namespace tessera
