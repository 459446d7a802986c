// GgufName: how a parameter of a family is called in GGUF files, and in files about them (importance
// matrices).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

struct GgufName {
  std::string tensor;  // "blk.0.attn_q.weight"
  int part = -1;       // of a fused tensor: which third of its rows; -1: all
};

// nullopt for what such files do not have: another family, or a parameter that only ours has.
std::optional<GgufName> gguf_name(std::string_view family, std::string_view parameter);

}  // namespace tessera
