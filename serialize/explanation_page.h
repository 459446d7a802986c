// An explanation as one self-contained HTML page: timeline, memory, decisions, tensors, runners-up. The page
// is serialize/explanation_page.html, compiled into the library; it draws the explanation's JSON.
#pragma once

#include <string>

#include "graph/explanation.h"

namespace tessera {

std::string explanation_to_page(const Explanation& explanation);

}  // namespace tessera
