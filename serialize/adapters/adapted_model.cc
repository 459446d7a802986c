#include "serialize/adapters/adapted_model.h"

#include <algorithm>

#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

// Concatenates x and y * sign along the rank.
HostTensor joined(const HostTensor& x, const HostTensor& y, bool along_rows, float sign) {
  const auto rows = static_cast<size_t>(x.type.shape[0]), columns = static_cast<size_t>(x.type.shape[1]);
  const size_t run = along_rows ? rows * columns : columns;  // elements that are contiguous in both
  std::vector<float> values;
  for (size_t begin = 0; begin < rows * columns; begin += run) {
    const auto first = x.as<float>().subspan(begin, run), second = y.as<float>().subspan(begin, run);
    values.insert(values.end(), first.begin(), first.end());
    for (const float value : second) values.push_back(sign * value);
  }
  Shape shape = x.type.shape;
  shape.set(along_rows ? 0 : 1, 2 * shape[along_rows ? 0 : 1]);
  return HostTensor::copy_of<float>({DType::kF32, shape}, values);
}

void fold_starts(AdaptedModel& made) {
  std::map<std::string, HostTensor> folded;  // first matrices, which adapters may share
  for (Adapter& it : made.adapters) {
    if (it.a0.empty()) continue;
    folded.try_emplace(it.a, joined(made.values.at(it.a), made.values.at(it.a0), it.transposed, 1));
    made.values[it.b] = joined(made.values.at(it.b), made.values.at(it.b0), !it.transposed, -1);
    it.rank *= 2;
    it.a0.clear(), it.b0.clear();
  }
  for (auto& [name, value] : folded) made.values[name] = std::move(value);
}

}  // namespace

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
  for (const Adapter& it : made.adapters)
    for (const std::string& name : {it.a, it.b, it.a0, it.b0})
      if (!name.empty() && !made.values.contains(name))
        return Status(StatusCode::kCorrupt,
                      format("the adapter of '{}' has no values '{}'", it.weight, name));
  fold_starts(made);
  return made;
}

}  // namespace tessera
