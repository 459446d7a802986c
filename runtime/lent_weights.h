// Lent weights: parameters in one session's arenas that another session's program reads in place.
#pragma once

#include <memory>

#include "graph/base/result.h"
#include "graph/program.h"
#include "runtime/session.h"
#include "runtime/shared_weights.h"

namespace tessera {

// Lends every parameter of `borrower` from the arenas of `lender`, on the
// same devices. `owner` keeps the lender alive. kUnsupported if the lender
// has a parameter in another type or layout, or outside device memory.
Result<std::shared_ptr<const SharedWeights>> lend_weights(const Session& lender, const Program& borrower,
                                                          const std::shared_ptr<const void>& owner);

// Whether the weights are still in place; a write may move a parameter to its own memory.
bool are_in_place(const Session& lender, const Program& borrower, const SharedWeights& weights);

}  // namespace tessera
