// Compares decoder sizes by their effect on results:
// exports must describe the same model when read again.
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

// The first difference, as in `a`: "L = 12", "a window of 4096 in layer 3". Empty: none.
std::string first_difference(const DecoderSizes& a, const DecoderSizes& b, double tolerance = 1e-12);

}  // namespace tessera
