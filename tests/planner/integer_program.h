// A decision graph as an integer program, solved by CBC (package coinor-cbc) where it is installed: a proof
// of optimality that shares no code and no idea with the search.
#pragma once

#include <cstdint>
#include <optional>

#include "parallel/search/elimination.h"

namespace tessera::testing {

struct IntegerProgram {
  bool feasible = false;
  double time_s = 0;     // the optimum
  double relaxed_s = 0;  // of the linear relaxation, when it was printed
};

bool cbc_is_installed();

// One 0/1 variable for each way of each node; for each edge and pair of ways a product, tied to its nodes by
// marginal equalities (the products of a way add up to its variable); INT64_MAX: no row for memory.
// Fails the test when CBC gives no answer.
IntegerProgram solve_with_cbc(const DecisionGraph& graph, int64_t budget_bytes);

}  // namespace tessera::testing
