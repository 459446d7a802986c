// Changes to a plan that several tests make by hand.
#pragma once

#include "tests/conformance/parity_harness.h"

namespace tessera::parity {

// Every product cut in g along the dim of its weight that data parallelism spreads (the contracted one where
// none is).
PlanEdit chunk_products(int32_t g);

}  // namespace tessera::parity
