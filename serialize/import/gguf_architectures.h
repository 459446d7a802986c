// The architectures of llama.cpp that families read.
#pragma once

#include <string>
#include <string_view>

#include "graph/models/model_family.h"

namespace tessera {

struct KnownArchitecture {
  const ModelFamily* family = nullptr;  // null: it is not known
  const GgufArchitecture* described = nullptr;
};
// With experts or without: two families may share a name.
KnownArchitecture find_gguf_architecture(std::string_view name, bool has_experts);
bool is_known_gguf_architecture(std::string_view name);
std::string known_gguf_architectures();  // "gemma2, gemma3, …"

}  // namespace tessera
