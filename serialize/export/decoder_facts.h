// What of a decoder's sizes changes its results: the comparison behind exports, whose words must mean the same model
// when they are read again.
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

// The first fact in which they differ, as `a` has it: "L = 12", "a window of 4096 in layer 3". Empty for none.
std::string first_difference(const DecoderSizes& a, const DecoderSizes& b);

}  // namespace tessera
