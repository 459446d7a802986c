#include "serialize/export/gguf_adapter_export.h"

#include <algorithm>
#include <map>

#include "graph/base/text.h"
#include "serialize/adapters/adapted_model.h"
#include "serialize/adapters/exported_adapters.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/export/gguf_keys.h"
#include "serialize/export/gguf_writer.h"
#include "serialize/head_rows.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// The most frequent alpha.
double common_alpha(const std::vector<ExportedAdapter>& adapters) {
  std::map<float, size_t> counts;
  for (const ExportedAdapter& it : adapters) ++counts[static_cast<float>(it.factor * static_cast<double>(it.rank))];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& it) { return it.second; });
  return most->first == 0 ? 1 : static_cast<double>(most->first);  // 0 means factor 1 in GGUF
}

HostTensor scaled(const HostTensor& matrix, double factor) {
  std::vector<float> values(matrix.as<float>().begin(), matrix.as<float>().end());
  for (float& value : values) value = static_cast<float>(value * factor);
  return HostTensor::copy_of<float>(matrix.type, values);
}

}  // namespace

Result<ExportContents> gguf_adapter_contents(OpenedModel& opened) {
  TSR_ASSIGN_OR_RETURN(const AdaptedModel adapted, adapted_model(opened));
  if (!adapted.trained.empty())
    return unsupported(format("'{}' trains in full besides, which GGUF adapters have no form for: merge, or write "
                              "format peft",
                              adapted.trained[0]));
  GgufWriter unused;
  TSR_ASSIGN_OR_RETURN(const WrittenKeys keys, write_gguf_keys(adapted.config, {}, unused));
  std::vector<int64_t> order;
  if (const auto& decoder = adapted.config.decoder)
    order = row_order(HeadRows{.D = decoder->D,
                               .R = decoder->R == 0 ? decoder->D : decoder->R,
                               .half = decoder->rope_half,
                               .wanted_half = keys.rope_half});
  const std::vector<ForeignModule> modules = foreign_modules(adapted.base, adapted.config.family->gguf);
  for (const Adapter& adapter : adapted.adapters) {
    if (!adapter.magnitude.empty())
      return unsupported(format("'{}' is a magnitude (DoRA), which GGUF adapters have no form for: merge, or write "
                                "format peft",
                                adapter.magnitude));
    const auto head = opened.model.metadata.find("base_head");
    if (head != opened.model.metadata.end() && (adapter.weight == "token_embedding" || adapter.weight == "output"))
      return unsupported(format("'{}' has an adapter, and in the base head and embedding are one, which llama.cpp "
                                "adapts neither of: merge, or write format peft",
                                adapter.weight));
    if (!adapter.bias.empty())
      return unsupported(format("'{}' is a bias, which GGUF adapters have no form for", adapter.bias));
    if (std::ranges::none_of(modules, [&](const ForeignModule& module) {
          return std::ranges::find(module.parts, adapter.weight, &ForeignModule::Part::parameter) != module.parts.end();
        }))
      return unsupported(format("the adapter of '{}' has no name in GGUF files", adapter.weight));
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<ExportedAdapter> adapters,
                       exported_adapters(modules, adapted.adapters, adapted.values, order));
  const double alpha = common_alpha(adapters);
  std::vector<TensorSource> tensors;
  for (const ExportedAdapter& it : adapters) {
    const double factor = it.factor * static_cast<double>(it.rank) / alpha;
    tensors.push_back(source_in_memory(it.module + ".weight.lora_a", it.a));
    tensors.push_back(source_in_memory(
        it.module + ".weight.lora_b", static_cast<float>(factor) == 1 ? it.b : scaled(it.b, factor)));
  }
  GgufWriter out;
  out.text("general.architecture", keys.architecture);
  out.text("general.type", "adapter");
  out.text("adapter.type", "lora");
  out.f32("adapter.lora.alpha", alpha);
  out.u32("general.alignment", static_cast<int64_t>(kGgufAlignment));
  ExportContents contents;
  TSR_ASSIGN_OR_RETURN(TensorFile file, out.finish(std::move(tensors)));
  contents.files.push_back(std::move(file));
  return contents;
}

}  // namespace tessera
