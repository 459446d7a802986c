// Sentences that follow from an explanation's own figures.
#pragma once

#include "graph/explanation.h"

namespace tessera {

// What the memory limit costs, where something faster would not fit; what the largest loss is.
void add_reasons(Explanation& explanation);

}  // namespace tessera
