#include "engine/model/stored_values.h"

#include "graph/base/text.h"
#include "graph/transform/row_adapters.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

StoredValues::StoredValues(const SharedModel& model, const Program& program, uint64_t seed)
    : model_(model), seed_(seed) {
  for (const RankProgram& rank : program.ranks)
    for (const Binding& binding : rank.parameters) types_.emplace(binding.name, binding.global);
}

Result<HostTensor> StoredValues::make(const std::string& name) const {
  const TensorType& type = types_.find(name)->second;
  if (is_adapter_state(name)) return HostTensor::zeros(type, nullptr);
  TSR_ASSIGN_OR_RETURN(HostTensor value, model_.read_uncached(name, seed_));
  if (value.type == type) return value;
  Result<HostTensor> stored = quantize_weight(value, type);
  if (!stored.ok()) return stored.status().with_context(format("parameter '{}'", name));
  model_.drop_pages(value);
  return stored;
}

}  // namespace tessera
