// Reasons derived from an explanation's own figures.
#pragma once

#include <string>

#include "graph/explanation.h"

namespace tessera {

// 0.123 -> "12.3 %".
std::string percent(double share);

// The cost of the memory limit, if a faster plan would not fit; the largest loss.
void add_reasons(Explanation& explanation);

}  // namespace tessera
