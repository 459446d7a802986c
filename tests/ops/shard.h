// Shards of one factor: which elements of each operand a part holds, cut out and put back by value.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/kernel_run.h"

namespace tessera::conformance {

// One way of cutting one factor, with the view of it that each part has.
struct FactorCut {
  Factor factor;
  std::string name;  // "k on 3 parts"
  std::vector<FactorView> parts;
};

// Every factor that may be sharded, on 2 and 3 parts (uneven, and empty where it is smaller), and on 2 parts
// of two ranges each (zig-zag) where it is long enough. `rule` has its extents.
std::vector<FactorCut> single_factor_cuts(const ShardingRule& rule);

// The instance as part `part` of the cut sees it; an error when infer disagrees with the rule about local
// shapes.
Result<OpInstance> local_instance(const OpInstance& whole, const ShardingRule& rule, const FactorCut& cut,
                                  size_t part);

// Flat indices of the elements of an operand that the part holds, in row-major order of the local tensor.
// `dims` are the operand's in the rule.
std::vector<int64_t> elements_of(const ShardingRule::OperandDims& dims, const Shape& shape,
                                 const ShardingRule& rule, const FactorView& part);

bool has_factor(const ShardingRule::OperandDims& dims, char factor);

}  // namespace tessera::conformance
