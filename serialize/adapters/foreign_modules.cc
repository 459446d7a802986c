#include "serialize/adapters/foreign_modules.h"

#include <optional>
#include <set>

#include "graph/analysis/index_inputs.h"
#include "serialize/export/huggingface_encoder_writer.h"

namespace tessera {
namespace {

// Parameters read only by lookups.
std::set<std::string, std::less<>> tables_of(const Graph& graph) {
  std::set<std::string, std::less<>> tables;
  for (const Node& node : graph.nodes())
    if (const auto look_up = find_look_up(graph, node)) tables.insert(graph.tensor(look_up->table).name);
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.op->weight.use != WeightUse::kRows || static_cast<int>(i) != node.op->weight.operand)
        tables.erase(graph.tensor(node.inputs[i]).name);
  return tables;
}

}  // namespace

std::vector<ForeignModule> foreign_modules(const Graph& graph, const ForeignNames& names) {
  constexpr std::string_view kWeight = ".weight";
  const auto tables = tables_of(graph);
  std::vector<ForeignModule> modules;
  std::set<std::string, std::less<>> done;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter)) {
    const std::string& parameter = graph.tensor(id).name;
    const std::optional<ForeignName> name = names.find(parameter);
    if (!name || graph.type(id).shape.rank() < 2 || !name->tensor.ends_with(kWeight)) continue;
    if (!done.insert(name->tensor).second) continue;
    ForeignModule module;
    module.name = name->tensor.substr(0, name->tensor.size() - kWeight.size());
    const auto add = [&](const std::string& part) {
      const std::optional<TensorId> found = graph.find_tensor(part);
      if (!found) return;
      const Shape& shape = graph.type(*found).shape;
      const int last = shape.rank() - 1;
      module.parts.push_back({part, module.rows, shape[last - 1]});
      module.rows += shape[last - 1];
      module.columns = shape[last];
    };
    if (name->parts[0].empty()) add(parameter);
    for (const std::string& part : name->parts)
      if (!part.empty()) add(part);
    module.is_table = tables.contains(parameter);
    module.is_expert = graph.type(id).shape.rank() > 2;
    module.is_router = is_router_name(parameter);
    modules.push_back(std::move(module));
  }
  return modules;
}

bool is_router_name(std::string_view parameter) { return parameter.ends_with(".router"); }

std::string huggingface_name(const ExportedConfig& model, std::string_view tensor) {
  if (model.encoder) {
    std::vector<TensorSource> named(1);
    named[0].name = tensor;
    name_encoder_tensors(named, model);
    return named[0].name;
  }
  const bool has_prefix = model.config.family == "gpt2" && !tensor.starts_with("lm_head");
  return (has_prefix ? "transformer." : "") + std::string(tensor);
}

std::string huggingface_module_name(const ExportedConfig& model, std::string_view module) {
  constexpr std::string_view kWeight = ".weight";
  std::string name = huggingface_name(model, std::string(module) + std::string(kWeight));
  name.resize(name.size() - kWeight.size());
  return name;
}

}  // namespace tessera
