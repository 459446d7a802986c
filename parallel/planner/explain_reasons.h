// Sentences that follow from an explanation's own figures.
#pragma once

#include <string>

#include "graph/explanation.h"

namespace tessera {

// 0.123 -> "12.3 %".
std::string percent(double share);

// What the memory limit costs, where something faster would not fit; what the largest loss is.
void add_reasons(Explanation& explanation);

}  // namespace tessera
