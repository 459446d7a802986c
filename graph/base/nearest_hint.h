// The end of a message about an unknown name: the known ones that may be meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/text.h"

namespace tessera {

// "; nearest: lr_rate, lr", or "" where nothing is near.
inline std::string nearest_hint(std::string_view name, std::span<const std::string> known) {
  const std::vector<std::string> near = nearest_names(name, known);
  return near.empty() ? "" : "; nearest: " + join(near, ", ");
}

}  // namespace tessera
