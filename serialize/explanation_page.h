// An explanation as one HTML page that needs nothing else: timeline, memory, decisions, tensors, runners-up.
// The page is serialize/explanation_page.html, made part of the library when it is built; it draws the
// explanation's JSON.
#pragma once

#include <string>

#include "graph/explanation.h"

namespace tessera {

std::string explanation_to_page(const Explanation& explanation);

}  // namespace tessera
