// Lent weights: parameters in the arenas of one session that another session's program only reads, without a copy.
#pragma once

#include <memory>

#include "graph/base/result.h"
#include "graph/program.h"
#include "runtime/session.h"
#include "runtime/shared_weights.h"

namespace tessera {

// Lends every parameter of `borrower` from where `lender` has it. The ranks of both are the same devices. `owner` keeps
// the lender alive. kUnsupported where the lender has a parameter in another type, in other parts, or not in device
// memory.
Result<std::shared_ptr<const SharedWeights>> lend_weights(const Session& lender, const Program& borrower,
                                                          const std::shared_ptr<const void>& owner);

// Whether the weights are still in place: a write may give a parameter memory of its own.
bool are_in_place(const Session& lender, const Program& borrower, const SharedWeights& weights);

}  // namespace tessera
