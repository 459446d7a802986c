// Types for rows whose length is no multiple of the wanted type's block.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/base/dtype.h"

namespace tessera {

// A type whose block divides rows of `width` elements: `wanted`, or the type of smaller blocks that llama.cpp
// puts in its place (of nf4, iq4_nl); none where neither does.
std::optional<DType> find_fitting_type(DType wanted, int64_t width);

}  // namespace tessera
