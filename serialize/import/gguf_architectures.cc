#include "serialize/import/gguf_architectures.h"

#include <set>
#include <vector>

#include "graph/base/text.h"

namespace tessera {

KnownArchitecture find_gguf_architecture(std::string_view name, bool has_experts) {
  KnownArchitecture found;
  for (const ModelFamily& family : all_model_families())
    for (const GgufArchitecture& each : family.architectures)
      if (each.name == name && (found.family == nullptr || each.has_experts == has_experts)) found = {&family, &each};
  return found;
}

bool is_known_gguf_architecture(std::string_view name) { return find_gguf_architecture(name, false).family != nullptr; }

std::string known_gguf_architectures() {
  std::set<std::string> names;
  for (const ModelFamily& family : all_model_families())
    for (const GgufArchitecture& each : family.architectures) names.emplace(each.name);
  return join(std::vector<std::string>(names.begin(), names.end()), ", ");
}

}  // namespace tessera
