#include "engine/model/described_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/opened_model.h"

namespace tessera {
namespace {

std::optional<DType> most_stored(const LogicalGraph& logical) {
  std::map<DType, int64_t> elements;
  for (const TensorId id : adaptable_weights(logical.graph)) {
    const auto stored = logical.stored.find(logical.graph.tensor(id).name);
    const TensorType& type = logical.graph.type(id);
    elements[stored == logical.stored.end() ? type.dtype : stored->second] += type.shape.elements();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& it) { return it.second; });
  if (most == elements.end() || most->first == DType::kF32 || most->first == DType::kF64) return std::nullopt;
  return most->first;
}

// Whether the text looks like a path; descriptions contain "=".
bool is_path(std::string_view text) {
  return text.find('=') == std::string_view::npos && text.find_first_of("/.") != std::string_view::npos;
}

}  // namespace

Result<DescribedModel> describe_model(std::string_view text) {
  DescribedModel made{std::string(text), std::string(text), std::nullopt};
  std::error_code ignored;
  if (text.find('\0') != std::string_view::npos || !std::filesystem::exists(made.name, ignored)) {
    if (is_path(text))
      return Status(StatusCode::kNotFound,
                    format("'{}': there is no such file or folder; wanted a .tsr or GGUF file, a Hugging Face folder, or a "
                           "description such as llama:L=32,C=4096,H=32,V=32000,T=4096",
                           quote(text)));
    return made;
  }
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(made.name));
  TSR_ASSIGN_OR_RETURN(const OpenedModel opened, open_model(std::move(source)));
  const auto refused = [&](std::string_view why) {
    return Status(StatusCode::kUnsupported, format("'{}' {}", quote(text), why));
  };
  const auto found = opened.model.metadata.find("description");
  if (found == opened.model.metadata.end() || !parse_shorthand(found->second).ok())
    return refused("says no family and sizes, of which estimates make their steps: plan it on devices at hand, without a "
                   "cluster");
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(opened.model.graph));
  if (!find_adapters(logical.graph).empty())
    return refused("has adapters: wanted the model without them, and option 'lora' for adapters of one rank");
  made.description = found->second;
  made.stored = most_stored(logical);
  return made;
}

}  // namespace tessera
