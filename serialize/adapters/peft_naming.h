// Beginnings of the names of modules in PEFT's files.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// How classes other than the language model's begin the names of its modules: without the model's own name, or within a
// model of several kinds of input.
struct Naming {
  std::string_view from, to;  // of the beginning
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
