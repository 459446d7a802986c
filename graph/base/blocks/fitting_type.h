// Fitting types: the substitutes of a block type for rows whose length is no multiple of its block.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/base/dtype.h"

namespace tessera {

// Returns a type whose block divides rows of `width` elements: `wanted`, or the type of
// smaller blocks that llama.cpp substitutes (for nf4, iq4_nl); nullopt where neither does.
std::optional<DType> find_fitting_type(DType wanted, int64_t width);

}  // namespace tessera
