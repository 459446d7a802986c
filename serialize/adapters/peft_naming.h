// Prefixes of module names in PEFT's files.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Naming: prefixes of classes other than the language model's:
// without the model's name, or inside a multimodal model.
struct Naming {
  std::string_view from, to;  // of the prefix
};
inline constexpr Naming kNamings[] = {{"", ""},
                                      {"model.", ""},
                                      {"transformer.", ""},
                                      {"model.", "model.language_model."},
                                      {"model.", "language_model.model."},
                                      {"bert.", ""},
                                      {"distilbert.", ""},
                                      {"roberta.", ""}};

inline std::string named(const Naming& naming, const std::string& name) {
  if (!name.starts_with(naming.from)) return name;
  return std::string(naming.to) + name.substr(naming.from.size());
}

}  // namespace tessera
