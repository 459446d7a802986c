#include "capi/engine/stored_values.h"

#include <algorithm>
#include <set>

#include "graph/base/text.h"

namespace tessera {

StoredValues::StoredValues(const SharedModel& model, const Program& program, uint64_t seed)
    : model_(model), seed_(seed) {
  for (const RankProgram& rank : program.ranks)
    for (const Binding& binding : rank.parameters) types_.emplace(binding.name, binding.global);
  const std::vector<std::string> given = model.parameter_names();
  const std::set<std::string_view> own(given.begin(), given.end());
  std::set<std::string> scales;
  for (const auto& [name, type] : types_)
    if (!own.contains(scale_name(name))) scales.insert(scale_name(name));
  for (const auto& [name, type] : types_)
    if (!scales.contains(name)) names_.push_back(name);
}

std::string StoredValues::scales_of(std::string_view name) const {
  std::string scales = scale_name(name);
  return types_.contains(scales) && !std::ranges::binary_search(names_, scales) ? scales : std::string();
}

Result<StoredWeight> StoredValues::make(const std::string& name) const {
  TSR_ASSIGN_OR_RETURN(HostTensor value, model_.read_uncached(name, seed_));
  if (value.type == type(name)) return StoredWeight{std::move(value), std::nullopt};
  const std::string scales = scales_of(name);
  Result<StoredWeight> stored = quantize_weight(value, type(name), scales.empty() ? nullptr : &type(scales));
  if (!stored.ok()) return stored.status().with_context(format("parameter '{}'", name));
  model_.drop_pages(value);
  return stored;
}

}  // namespace tessera
