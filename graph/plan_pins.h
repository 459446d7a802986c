// PlanPins: single decisions of the user, in addition to --parallel. The planner chooses
// the rest around them; a candidate that cannot satisfy them is refused with the reason.
//
// Names may hold '*' (graph/base/wildcard.h): "block.*.fc.weight".
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct PlanPins {
  // Parameter or state -> its placement, in the notation of a
  // plan's text: "{[tp], []}" by the axes of the plan's mesh.
  std::vector<std::pair<std::string, std::string>> stored;
  // Operation, named by a parameter that it reads or its scope -> factors over axes: "n over tp, m over dp";
  // "whole".
  std::vector<std::pair<std::string, std::string>> ops;
  // Scopes of forward operations, or tensors, that are kept for backward and never recomputed.
  std::vector<std::string> keep;
  // Scopes at which the second, third, ... stage of the pipeline begins.
  std::vector<std::string> stages;

  bool empty() const { return stored.empty() && ops.empty() && keep.empty() && stages.empty(); }
  friend bool operator==(const PlanPins&, const PlanPins&) = default;
};

}  // namespace tessera
