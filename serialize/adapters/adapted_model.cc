#include "serialize/adapters/adapted_model.h"

#include <algorithm>

#include "graph/transform/weight_storage.h"

namespace tessera {

Result<AdaptedModel> adapted_model(const OpenedModel& opened) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(opened.model.graph));
  AdaptedModel made;
  made.adapters = find_adapters(logical.graph);
  if (made.adapters.empty())
    return Status(StatusCode::kFailedPrecondition,
                  "the model has no low-rank adapters to export (format hf and gguf write whole models)");
  TSR_ASSIGN_OR_RETURN(made.base, without_adapters(logical.graph));
  Model plain;
  plain.graph = made.base;
  plain.metadata = opened.model.metadata;
  TSR_ASSIGN_OR_RETURN(made.config, exported_config(plain));
  for (const TensorSource& source : opened.parameters) {
    if (is_adapter_name(source.name)) {
      TSR_ASSIGN_OR_RETURN(const HostTensor stored, read_whole(source));
      TSR_ASSIGN_OR_RETURN(made.values[source.name], widen_weight(stored));
    } else if (const auto id = logical.graph.find_tensor(source.name); logical.graph.tensor(*id).trainable) {
      made.trained.push_back(source.name);
    }
  }
  return made;
}

}  // namespace tessera
