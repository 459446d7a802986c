#include "serialize/adapters/module_adapter.h"

#include <string>

#include "serialize/adapters/adapter_values.h"
#include "serialize/head_rows.h"

namespace tessera {
namespace {

std::string stem_of(std::string parameter) {
  if (parameter.ends_with(".weight")) parameter.resize(parameter.size() - 7);
  return parameter;
}

}  // namespace

void add_adapter(AdapterFile& file, const ForeignModule& module, const ModuleAdapter& adapter,
                 const std::vector<int64_t>& order) {
  const std::string a = stem_of(module.parts[0].parameter) + ".lora_a";
  file.values[a] = adapter.a;
  for (const ForeignModule::Part& part : module.parts) {
    const std::string stem = stem_of(part.parameter);
    const bool is_whole = module.is_table;  // its b has the table's columns as rows
    const std::vector<int64_t> own = has_rotated_rows(part.parameter) ? order : std::vector<int64_t>();
    const auto rows = [&](const HostTensor& all) { return rows_of(all, part.first_row, part.rows, own); };
    file.values[stem + ".lora_b"] = is_whole ? adapter.b : rows(adapter.b);
    if (!adapter.bias.data.empty()) file.values[stem + ".lora_bias"] = rows(adapter.bias);
    if (!adapter.magnitude.data.empty()) file.values[stem + ".lora_magnitude"] = rows(adapter.magnitude);
    file.weights.push_back({.name = part.parameter,
                            .a = module.parts.size() > 1 ? a : "",
                            .rank = adapter.rank,
                            .factor = adapter.factor,
                            .has_bias = !adapter.bias.data.empty(),
                            .has_magnitude = !adapter.magnitude.data.empty(),
                            .has_start = adapter.has_start,
                            .dropout = adapter.dropout});
  }
}

}  // namespace tessera
