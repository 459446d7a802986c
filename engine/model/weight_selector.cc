#include "engine/model/weight_selector.h"

#include <algorithm>

#include "graph/base/nearest_hint.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/export/exported_config.h"

namespace tessera {
namespace {

constexpr std::string_view kExpression = "re:", kAllLinear = "all-linear";

std::vector<std::string> pattern_texts(std::string_view patterns) {
  if (trim(patterns).starts_with(kExpression)) return {std::string(trim(patterns))};
  std::vector<std::string> all = split(patterns, ',');
  for (std::string& each : all) each = std::string(trim(each));
  return all;
}

}  // namespace

Result<WeightSelector::Pattern> WeightSelector::Pattern::create(std::string_view text,
                                                                std::string_view option) {
  Pattern made;
  made.text_ = text;
  if (!text.starts_with(kExpression)) return made;
  TSR_ASSIGN_OR_RETURN(made.expression_,
                       ModuleExpression::create(std::string(option), text.substr(kExpression.size())));
  return made;
}

WeightSelector::WeightSelector(const Model& model, const Graph& graph)
    : graph_(graph), modules_(graph.tensors().size()), is_linear_(graph.tensors().size()) {
  const Result<ExportedConfig> config = exported_config(model);
  if (!config.ok()) {  // unknown family: matrices of blocks are linear
    for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
      is_linear_[index(id)] = graph.tensor(id).name.starts_with("block.") && graph.type(id).shape.rank() == 2;
    return;
  }
  const ForeignNames& names = config->family->huggingface;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const auto name = names.find(graph.tensor(id).name);
    if (!name) continue;
    const std::string tensor = huggingface_name(*config, name->tensor);
    modules_[index(id)] = tensor.substr(0, tensor.rfind('.'));
  }
  for (const ForeignModule& module : foreign_modules(graph, names))
    for (const ForeignModule::Part& part : module.parts)
      is_linear_[index(*graph.find_tensor(part.parameter))] =
          !module.is_table && !module.is_head() && !module.is_expert && !module.is_router;
}

Result<bool> WeightSelector::matches(const Pattern& pattern, TensorId parameter) const {
  const std::string& module = modules_[index(parameter)];
  if (pattern.expression_) return module.empty() ? Result<bool>(false) : pattern.expression_->matches(module);
  if (pattern.text_ == kAllLinear) return bool{is_linear_[index(parameter)]};
  return matches_wildcard(pattern.text_, graph_.tensor(parameter).name) ||
         (!module.empty() && ends_with_name(module, pattern.text_));
}

Result<std::vector<TensorId>> WeightSelector::select(std::string_view patterns, std::span<const TensorId> of,
                                                     std::string_view option) const {
  std::vector<TensorId> all;
  std::vector<bool> taken(graph_.tensors().size());
  for (const std::string& text : pattern_texts(patterns)) {
    TSR_ASSIGN_OR_RETURN(const Pattern pattern, Pattern::create(text, option));
    bool found = false;
    for (const TensorId id : of) {
      TSR_ASSIGN_OR_RETURN(const bool is, matches(pattern, id));
      if (!is) continue;
      if (!taken[index(id)]) all.push_back(id);
      taken[index(id)] = found = true;
    }
    if (found) continue;
    std::vector<std::string> names;
    for (const TensorId id : of) {
      names.push_back(graph_.tensor(id).name);
      if (const std::string& module = modules_[index(id)]; !module.empty())
        names.push_back(module.substr(module.rfind('.') + 1));
    }
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    return Status(StatusCode::kNotFound, format("{}: no parameter matches '{}'{}", option,
                                                quote(text), nearest_hint(text, names)));
  }
  return all;
}

}  // namespace tessera
