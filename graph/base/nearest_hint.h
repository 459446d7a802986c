// nearest_hint: the end of a message about an unknown name, with the nearest known names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/text.h"

namespace tessera {

// Returns "; nearest: lr_rate, lr", or "" where no name is near.
inline std::string nearest_hint(std::string_view name, std::span<const std::string> known) {
  const std::vector<std::string> near = nearest_names(name, known);
  return near.empty() ? "" : "; nearest: " + join(near, ", ");
}

}  // namespace tessera
